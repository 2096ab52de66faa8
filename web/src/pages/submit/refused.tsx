// Errors of a document by field, each with its line.
import type { ApiError } from "../../api/problem";
import { Icon } from "../../ui/icon";
import { Panel } from "../../ui/panel";
import { lineOf } from "../../words/document";
import { plural } from "../../words/number";

export function Refused({ error, text, onGo }: { error: ApiError; text: string; onGo: (line: number) => void }) {
  return (
    <Panel
      title={error.fields.length === 0 ? error.title : `${plural(error.fields.length, "field")} to correct`}
      aside={<Icon name="warning" />}
      className="panel-bad"
    >
      {error.detail === null || error.fields.length > 0 ? null : <p>{error.detail}</p>}
      <ul className="mistakes">
        {error.fields.map(({ field, value, expected }, index) => {
          const line = lineOf(text, field);
          return (
            <li key={`${field} ${index}`}>
              <div className="mistake-head">
                <code>{field}</code>
                {line === null ? null : (
                  <button type="button" className="button button-small" onClick={() => onGo(line)}>
                    Line {line + 1}
                  </button>
                )}
              </div>
              <p>
                {value === "" ? null : (
                  <>
                    is <code>{value}</code>;{" "}
                  </>
                )}
                expected: {expected}
              </p>
            </li>
          );
        })}
      </ul>
    </Panel>
  );
}
