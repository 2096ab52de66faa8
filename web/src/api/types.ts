// The wire's nouns by the names the page uses; their shapes are those of the api's own document.
import type { components } from "./schema";

type Schemas = components["schemas"];

export type JobPhase = Schemas["JobPhase"];
export type Intent = Schemas["Intent"];
export type JobState = Schemas["JobState"];
export type AfterStop = Schemas["AfterStop"];
export type RequeueCause = Schemas["RequeueCause"];
export type JobView = Schemas["JobView"];
export type JobSpec = Schemas["JobSpec"];
export type ProgressView = Schemas["ProgressView"];
export type Waiting = Schemas["Waiting"];
export type WaitingView = Schemas["WaitingView"];
export type Wait = Schemas["Wait"];
export type Change = Schemas["Change"];
export type Evaluation = Schemas["Evaluation"];
export type SampleView = Schemas["SampleView"];
export type EvaluationView = Schemas["EvaluationView"];
export type Progress = Schemas["SeriesView"];
export type Role = Schemas["Role"];
export type TaskState = Schemas["TaskState"];
export type Outcome = Schemas["Outcome"];
export type TaskView = Schemas["TaskView"];
export type CheckpointView = Schemas["CheckpointView"];
export type StoredEvent = Schemas["EventView"];
export type MusterEvent = Schemas["Event"];
export type NodeView = Schemas["NodeView"];
export type GpuView = Schemas["GpuView"];
export type Explanation = Schemas["ExplainView"];
export type Forecast = Schemas["Forecast"];
export type Interval = Schemas["Interval"];
export type Accuracy = Schemas["AccuracyView"];
export type PlanView = Schemas["PlanView"];
export type ShiftedJob = Schemas["ShiftedJob"];
export type NodeObstacle = Schemas["NodeObstacle"];
export type Me = Schemas["Me"];
