// Dialog for the number of additional trials. The API validates the number.
import { useRef, useState } from "react";
import { newKey } from "../../api/key";
import { extendStudy } from "../../api/studies";
import type { StudyView } from "../../api/types";
import { Confirm } from "../../ui/confirm";
import { count } from "../../words/number";

export function Extend({ study, onDone, onClose }: { study: StudyView; onDone: () => void; onClose: () => void }) {
  const [more, setMore] = useState(String(Math.max(1, Math.ceil(study.trials.limit / 2))));
  // One key per number while the dialog is open, so that a retry after a lost answer extends only
  // once.
  const key = useRef({ more: "", value: "" });
  const act = async () => {
    if (key.current.more !== more) key.current = { more, value: newKey() };
    await extendStudy(study.id, Number(more), key.current.value);
    onDone();
  };
  const text = `It may create ${count(study.trials.limit)} trials now. A finished study continues.`;
  return (
    <Confirm question={{ title: `Extend ${study.name}`, text, verb: "Extend", danger: false, act }} onClose={onClose}>
      <label className="extend-more">
        More trials
        <input
          type="number"
          min={1}
          max={100_000}
          step={1}
          required
          value={more}
          onChange={(event) => setMore(event.target.value)}
        />
      </label>
    </Confirm>
  );
}
