// Documents from which a user can begin: the examples of the repository.
import cnn from "../../../../examples/fashion-cnn.yaml?raw";
import program from "../../../../examples/own-program.yaml?raw";
import pytorch from "../../../../examples/pytorch-ddp.yaml?raw";
import asha from "../../../../examples/studies/asha.yaml?raw";
import metric from "../../../../examples/studies/own-metric.yaml?raw";
import tpe from "../../../../examples/studies/tpe.yaml?raw";
import table from "../../../../examples/table-mlp.yaml?raw";
import text from "../../../../examples/text-gpt.yaml?raw";

export interface Template {
  title: string;
  text: string;
}

/** Documents to choose from; the page begins with the first one. */
export type Templates = readonly [Template, ...Template[]];

export const JOB_TEMPLATES: Templates = [
  { title: "Images, built-in engine", text: cnn },
  { title: "Text, built-in engine", text },
  { title: "Table, built-in engine", text: table },
  { title: "Own program", text: program },
  { title: "PyTorch, distributed", text: pytorch },
];

export const STUDY_TEMPLATES: Templates = [
  { title: "ASHA, built-in engine", text: asha },
  { title: "TPE, built-in engine", text: tpe },
  { title: "Own program and metric", text: metric },
];
