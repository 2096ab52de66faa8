// The fields that the document may have at the caret, with their meaning. A click inserts one.
import { useMemo } from "react";
import { schemas } from "../../api/openapi";
import { useResource } from "../../api/resource";
import { Panel } from "../../ui/panel";
import { fieldsAt, placeAt, type Field, type Place } from "../../words/schema";

interface Props {
  text: string;
  /** Offset of the caret in the text. */
  caret: number;
  /** Name of the document's schema. */
  root: string;
  onInsert: (field: Field, place: Place) => void;
}

export function Fields({ text, caret, root, onInsert }: Props) {
  const known = useResource("schemas", () => schemas());
  const place = useMemo(() => placeAt(text, caret), [text, caret]);
  const fields = useMemo(
    () => (known.data === null ? [] : fieldsAt(known.data, root, place)),
    [known.data, root, place],
  );
  if (fields.length === 0) return null;
  return (
    <Panel
      title={place.path.length === 0 ? "Fields of the document" : `Fields of ${place.path.join(".")}`}
      aside={<span className="muted">at the caret; a click inserts one</span>}
    >
      <dl className="fields">
        {fields.map((field) => (
          <div key={field.name}>
            <dt>
              <button type="button" className="field-name" onClick={() => onInsert(field, place)}>
                {field.name}
              </button>{" "}
              <span className="muted">
                {field.type}
                {field.required ? ", required" : ""}
              </span>
            </dt>
            <dd>{field.description}</dd>
          </div>
        ))}
      </dl>
    </Panel>
  );
}
