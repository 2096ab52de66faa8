// Preview of an artifact. A program has written it, so none of it is run: images are shown by an
// image element, and HTML in a frame without scripts and with an origin of its own.
import { useEffect, useRef, useState } from "react";
import { artifactFile, artifactText } from "../../api/calls";
import { useResource } from "../../api/resource";
import type { ArtifactView, JobView } from "../../api/types";
import { Failure, Loading } from "../../ui/states";
import { bytes } from "../../words/number";

/** Length of a shown text. */
const TEXT_BYTES = 64 * 1024;
/** Size above which an image is not loaded for a preview. */
const MOST_IMAGE_BYTES = 20 * 1024 * 1024;
/** Rows of a table; the rest is cut off. */
const MOST_ROWS = 200;

const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/svg+xml"];

interface Props {
  job: JobView;
  artifact: ArtifactView;
}

export function ArtifactPreview({ job, artifact }: Props) {
  const section = useRef<HTMLElement>(null);
  // The focus scrolls to it: on a narrow screen it is above the list.
  useEffect(() => section.current?.focus(), []);
  return (
    <section ref={section} tabIndex={-1} className="artifact-preview" aria-label={`Preview of ${artifact.path}`}>
      <Content job={job} artifact={artifact} />
    </section>
  );
}

function Content({ job, artifact }: Props) {
  const { content_type: kind } = artifact;
  if (IMAGES.includes(kind) && artifact.bytes <= MOST_IMAGE_BYTES) return <Picture job={job} artifact={artifact} />;
  if (kind.startsWith("text/") || kind === "application/json") return <Text job={job} artifact={artifact} />;
  return <p className="muted">There is no preview of this kind of file ({kind}); download it.</p>;
}

function Picture({ job, artifact }: Props) {
  const image = useResource(artifact.sha256, () => artifactFile(job.id, artifact.path));
  const [url, setUrl] = useState<string | null>(null);
  const { data } = image;
  useEffect(() => {
    if (data === null) return undefined;
    // The type of the answer is that of a file to save.
    const made = URL.createObjectURL(new Blob([data], { type: artifact.content_type }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [data, artifact.content_type]);
  if (image.error !== null) return <Failure error={image.error} retry={image.reload} />;
  if (url === null) return <Loading label="Loading the image" rows={4} />;
  return <img src={url} alt={artifact.path} />;
}

function Text({ job, artifact }: Props) {
  const text = useResource(artifact.sha256, (signal) => artifactText(job.id, artifact.path, TEXT_BYTES, signal));
  if (text.error !== null) return <Failure error={text.error} retry={text.reload} />;
  if (text.data === null) return <Loading label="Loading the text" rows={6} />;
  return (
    <>
      {artifact.bytes > TEXT_BYTES ? (
        <p className="muted">
          The first {bytes(TEXT_BYTES)} of {bytes(artifact.bytes)}
        </p>
      ) : null}
      <Shown kind={artifact.content_type} text={text.data} isWhole={artifact.bytes <= TEXT_BYTES} />
    </>
  );
}

function Shown({ kind, text, isWhole }: { kind: string; text: string; isWhole: boolean }) {
  if (kind === "text/html") {
    return (
      <>
        <p className="muted">Scripts and styles of the page are not run; download it to see all of it.</p>
        <iframe title="HTML without scripts" sandbox="" srcDoc={text} />
      </>
    );
  }
  const rows = kind === "text/csv" ? table(text, isWhole) : null;
  if (rows !== null) return <Table rows={rows} />;
  return <pre className="document">{kind === "application/json" && isWhole ? indented(text) : text}</pre>;
}

function indented(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** Returns the cells of a CSV file without quotes; null for other files. */
export function table(text: string, isWhole: boolean): string[][] | null {
  if (text.includes('"')) return null;
  const lines = text.split(/\r?\n/);
  // The last line is empty or was cut off.
  if (!isWhole || lines[lines.length - 1] === "") lines.pop();
  const rows = lines.slice(0, MOST_ROWS + 1).map((line) => line.split(","));
  const width = rows[0]?.length ?? 0;
  return width > 0 && rows.every((row) => row.length === width) ? rows : null;
}

function Table({ rows }: { rows: string[][] }) {
  const [head = [], ...body] = rows;
  return (
    <div className="table-wrap">
      <table className="table">
        <thead>
          <tr>
            {head.map((name, at) => (
              <th key={at} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {body.map((row, line) => (
            <tr key={line}>
              {row.map((cell, at) => (
                <td key={at} className="num">
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
