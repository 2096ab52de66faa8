{{/* Shared parts of pods: users, placement, variables and volumes. */}}

{{/* Security context of a pod. {root, user?: overrides the user of the values} */}}
{{- define "muster.podSecurity" -}}
runAsNonRoot: true
{{- with default .root.Values.security.runAsUser .user }}
runAsUser: {{ int64 . }}
{{- end }}
{{- with default .root.Values.security.runAsGroup .user }}
runAsGroup: {{ int64 . }}
{{- end }}
{{- with default .root.Values.security.fsGroup .user }}
fsGroup: {{ int64 . }}
# Without this a large volume is walked through at each start.
fsGroupChangePolicy: OnRootMismatch
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Security context of every container. */}}
{{- define "muster.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "muster.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Placement of a pod. {values: {nodeSelector?, tolerations?, affinity?, priorityClassName?}} */}}
{{- define "muster.scheduling" -}}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* Spread over nodes if possible. {root, component, values: {topologySpreadConstraints}} */}}
{{- define "muster.spread" -}}
topologySpreadConstraints:
  {{- with .values.topologySpreadConstraints }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "muster.selector" . | nindent 8 }}
  {{- end }}
{{- end -}}

{{/* A variable from a secret. {name, secret, key} */}}
{{- define "muster.secretVariable" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: {{ .key }}
{{- end -}}

{{/* The keys of users' secrets, for the API server and the scheduler. */}}
{{- define "muster.keysMount" -}}
- name: secret-keys
  mountPath: /etc/muster/secret-keys
  readOnly: true
{{- end -}}

{{- define "muster.keysVolume" -}}
- name: secret-keys
  secret:
    secretName: {{ include "muster.keysSecret" . }}
    # 0440; in decimal, which every version of YAML reads as a number.
    defaultMode: 288
    items:
      - key: {{ .Values.secrets.key }}
        path: keys
{{- end -}}

{{- define "muster.postgresCaMount" -}}
{{- if and (eq .Values.postgres.mode "external") .Values.postgres.external.caSecret }}
- name: postgres-ca
  mountPath: /etc/muster/postgres
  readOnly: true
{{- end }}
{{- end -}}

{{- define "muster.postgresCaVolume" -}}
{{- if and (eq .Values.postgres.mode "external") .Values.postgres.external.caSecret }}
- name: postgres-ca
  secret:
    secretName: {{ .Values.postgres.external.caSecret }}
    items:
      - key: {{ .Values.postgres.external.caKey }}
        path: ca.crt
{{- end }}
{{- end -}}

{{/* A volume shared by all nodes. {root, name: checkpoints or datasets, readOnly} */}}
{{- define "muster.sharedVolume" -}}
{{- $from := index .root.Values .name -}}
- name: {{ .name }}
  {{- if eq $from.kind "claim" }}
  persistentVolumeClaim:
    claimName: {{ include "muster.fullname" .root }}-{{ .name }}
  {{- else if eq $from.kind "existingClaim" }}
  persistentVolumeClaim:
    claimName: {{ $from.existingClaim }}
  {{- else if eq $from.kind "nfs" }}
  nfs:
    server: {{ $from.nfs.server }}
    path: {{ $from.nfs.path }}
    readOnly: {{ .readOnly }}
  {{- else }}
  hostPath:
    path: {{ $from.hostPath }}
    type: Directory
  {{- end }}
{{- end -}}

{{/* Place of the checkpoints in the daemons' form: a mounted folder or a bucket. */}}
{{- define "muster.checkpointRoot" -}}
{{- ternary .Values.checkpoints.bucket.url "/srv/checkpoints" (eq .Values.checkpoints.kind "bucket") -}}
{{- end -}}

{{/* Credentials of a bucket. */}}
{{- define "muster.bucketCredentials" -}}
{{- if and (eq .Values.checkpoints.kind "bucket") .Values.checkpoints.bucket.credentialsSecret }}
- secretRef:
    name: {{ .Values.checkpoints.bucket.credentialsSecret }}
{{- end }}
{{- end -}}
