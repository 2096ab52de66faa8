// Initial document of a new study: examples/studies/asha.yaml, which runs on any cluster in
// minutes.
export const EXAMPLE = `# Asynchronous successive halving over learning rate and width: all trials train one epoch, the best
# third of them three, the best third of those nine. \`reproducible\` gives the same trials in every
# run, independent of the speed of nodes.
version: muster/v1
kind: study
name: fashion-asha
search:
  objectives:
    - { metric: test_accuracy, goal: maximize }
  parameters:
    # \`log\` is a logarithmic scale: 0.001 to 0.01 gets as many trials as 0.01 to 0.1.
    - { name: rate, field: engine.optimizer.learning_rate, type: float, low: 0.001, high: 0.5, log: true }
    - { name: width, field: "engine.model.hidden[0]", type: int, low: 32, high: 512, step: 32 }
  searcher: { kind: random }
  stopper: { kind: asha, min: 1, eta: 3 }
  budget: { max: 9, unit: epochs }
  trials: 27
  concurrency: 4
  reproducible: true
job:
  engine:
    model: { kind: mlp, hidden: [128] }
    dataset: { name: fashion-mnist }
    optimizer: { kind: sgd, momentum: 0.9 }
    batch: 128
`;
