// Initial document of the submit page: a job on real data that runs on any cluster in minutes.
export const EXAMPLE = `# A small convolutional network on the 60,000 images of Fashion-MNIST.
version: muster/v1
name: fashion-cnn
labels:
  team: vision
priority: 0
engine:
  model: { kind: cnn, channels: [16, 32], dense: [64] }
  dataset: { name: fashion-mnist }
  optimizer: { kind: adam, learning_rate: 0.001 }
  batch: 128            # of all workers together
  seed: 7
exchange:
  topology: parameter_server
  consistency: { kind: bsp }
scale:                  # ranges from which the scheduler chooses
  workers: { min: 1, max: 4 }
  ps_shards: { min: 1, max: 2 }
checkpoint:
  every_steps: 200
  keep: 3
stop:
  epochs: 4
retries: 3
`;
