{{/* Names, labels and images. Every helper takes the root context, or a dict with it as `root`. */}}

{{- define "muster.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels that select the pods of a component, or of the whole release without one. Constant over
upgrades. {root, component?, pool?} */}}
{{- define "muster.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- with .pool }}
muster-pool: {{ . }}
{{- end }}
{{- end -}}

{{/* Metadata without the name. {root, component, pool?, annotations?, labels?} */}}
{{- define "muster.metadata" -}}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- with mergeOverwrite (dict) .root.Values.commonLabels (default (dict) .labels) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- include "muster.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  app.kubernetes.io/part-of: muster
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with mergeOverwrite (dict) .root.Values.commonAnnotations (default (dict) .annotations) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Metadata of a pod. {root, component, pool?, values: {podLabels, podAnnotations}} */}}
{{- define "muster.podMetadata" -}}
labels:
  {{- with mergeOverwrite (dict) .root.Values.commonLabels .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- include "muster.selector" . | nindent 2 }}
{{- with mergeOverwrite (dict) .root.Values.commonAnnotations .values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Name of an image. {root, image: {repository, tag, digest}} */}}
{{- define "muster.image" -}}
{{- $registry := .root.Values.images.registry | trimSuffix "/" -}}
{{- $name := ternary .image.repository (printf "%s/%s" $registry .image.repository) (empty $registry) -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .root.Chart.AppVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Name of a service account. {root, component, values: {serviceAccount}} */}}
{{- define "muster.serviceAccount" -}}
{{- with .values.serviceAccount -}}
{{- if .create -}}
{{- default (printf "%s-%s" (include "muster.fullname" $.root) $.component) .name -}}
{{- else -}}
{{- default "default" .name -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "muster.postgresSecret" -}}
{{- if eq .Values.postgres.mode "bundled" -}}
{{ include "muster.fullname" . }}-postgres
{{- else -}}
{{ .Values.postgres.external.secret }}
{{- end -}}
{{- end -}}

{{- define "muster.keysSecret" -}}
{{- default (printf "%s-secret-keys" (include "muster.fullname" .)) .Values.secrets.existingSecret -}}
{{- end -}}

{{- define "muster.joinSecret" -}}
{{- default (printf "%s-join" (include "muster.fullname" .)) .Values.joinToken.existingSecret -}}
{{- end -}}
