// A forest of extremely randomised trees (Geurts, Ernst and Wehenkel, 2006) for regression, and the
// permutation importance of its features (Breiman, 2001), measured out of bag. Pure: the seed is
// fixed, so the same trials give the same numbers.

export interface Importance {
  /**
   * Increase of the mean squared error when the feature is shuffled, as a share of the variance; 0
   * or less means that the feature has no effect.
   */
  features: number[];
  /**
   * Share of the variance that the forest predicts on rows outside of a tree's sample. Near 0 or
   * below, importances are meaningless.
   */
  explained: number;
}

const TREES = 80;
const LEAF = 3;
const DEPTH = 12;

type Node = { value: number } | { feature: number; below: number; left: Node; right: Node };

/**
 * Rows of features and their targets, of equal length. Returns `null` without variance, or with too
 * few rows to hold any back.
 */
export function importance(rows: readonly (readonly number[])[], targets: readonly number[]): Importance | null {
  const width = rows[0]?.length ?? 0;
  const spread = variance(targets);
  if (rows.length < 3 * LEAF || width === 0 || spread <= 0) return null;
  const random = generator(1);
  const worse = new Array<number>(width).fill(0);
  const sums = new Array<number>(rows.length).fill(0);
  const votes = new Array<number>(rows.length).fill(0);
  let trees = 0;
  for (let tree = 0; tree < TREES; tree += 1) {
    const bag = rows.map(() => Math.floor(random() * rows.length));
    const seen = new Set(bag);
    const held = rows.map((_, index) => index).filter((index) => !seen.has(index));
    if (held.length < 2) continue;
    trees += 1;
    const root = grow(rows, targets, bag, random, 0);
    let error = 0;
    for (const index of held) {
      const guess = predict(root, rows[index] ?? []);
      sums[index] = (sums[index] ?? 0) + guess;
      votes[index] = (votes[index] ?? 0) + 1;
      error += (guess - (targets[index] ?? 0)) ** 2;
    }
    for (let feature = 0; feature < width; feature += 1) {
      const order = shuffled(held, random);
      let permuted = 0;
      held.forEach((index, at) => {
        const row = [...(rows[index] ?? [])];
        row[feature] = rows[order[at] ?? index]?.[feature] ?? 0;
        permuted += (predict(root, row) - (targets[index] ?? 0)) ** 2;
      });
      worse[feature] = (worse[feature] ?? 0) + (permuted - error) / held.length;
    }
  }
  if (trees === 0) return null;
  return {
    features: worse.map((sum) => sum / trees / spread),
    explained: 1 - heldError(sums, votes, targets) / spread,
  };
}

function heldError(sums: readonly number[], votes: readonly number[], targets: readonly number[]): number {
  let error = 0;
  let counted = 0;
  votes.forEach((count, index) => {
    if (count === 0) return;
    error += ((sums[index] ?? 0) / count - (targets[index] ?? 0)) ** 2;
    counted += 1;
  });
  return error / Math.max(1, counted);
}

/** Chooses among one random cut per feature the one with the least remaining variance. */
function grow(
  rows: readonly (readonly number[])[],
  targets: readonly number[],
  members: readonly number[],
  random: () => number,
  depth: number,
): Node {
  const own = members.map((index) => targets[index] ?? 0);
  const leaf = { value: own.reduce((sum, value) => sum + value, 0) / own.length };
  if (members.length < 2 * LEAF || depth >= DEPTH || variance(own) <= 0) return leaf;
  let found: { feature: number; below: number; score: number } | null = null;
  const width = rows[0]?.length ?? 0;
  for (let feature = 0; feature < width; feature += 1) {
    const values = members.map((index) => rows[index]?.[feature] ?? 0);
    const low = Math.min(...values);
    const high = Math.max(...values);
    if (low === high) continue;
    const below = low + random() * (high - low);
    const left = own.filter((_, at) => (values[at] ?? 0) <= below);
    const right = own.filter((_, at) => (values[at] ?? 0) > below);
    if (left.length < LEAF || right.length < LEAF) continue;
    const score = left.length * variance(left) + right.length * variance(right);
    if (found === null || score < found.score) found = { feature, below, score };
  }
  if (found === null) return leaf;
  const { feature, below } = found;
  const side = (wanted: boolean) => members.filter((index) => (rows[index]?.[feature] ?? 0) <= below === wanted);
  return {
    feature,
    below,
    left: grow(rows, targets, side(true), random, depth + 1),
    right: grow(rows, targets, side(false), random, depth + 1),
  };
}

function predict(root: Node, row: readonly number[]): number {
  let node = root;
  while ("feature" in node) node = (row[node.feature] ?? 0) <= node.below ? node.left : node.right;
  return node.value;
}

function variance(values: readonly number[]): number {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length;
}

function shuffled(values: readonly number[], random: () => number): number[] {
  const order = [...values];
  for (let last = order.length - 1; last > 0; last -= 1) {
    const other = Math.floor(random() * (last + 1));
    const kept = order[last] ?? 0;
    order[last] = order[other] ?? 0;
    order[other] = kept;
  }
  return order;
}

/** mulberry32 by Tommy Ettinger: 32 bits of state suffice for some thousand draws. */
function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
