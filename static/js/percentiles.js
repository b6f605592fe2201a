// p50, p95 and p99 of a histogram {upper bound: count}, as console/monitoring/aggregate.py has them.

export function percentiles(buckets, wanted = [50, 95, 99]) {
  const bounds = Object.keys(buckets).filter((bound) => buckets[bound]).sort((a, b) => Number(a) - Number(b));
  const total = bounds.reduce((count, bound) => count + buckets[bound], 0);
  return wanted.map((share) => (total ? percentile(buckets, bounds, (total * share) / 100) : null));
}

function percentile(buckets, bounds, rank) {
  let passed = 0;
  let previous = 0;
  for (const name of bounds) {
    const bound = Number(name);
    const count = buckets[name];
    if (passed + count >= rank) {
      if (!Number.isFinite(bound)) return previous;
      const low = Math.max(previous, bound * 0.8);
      return low + ((bound - low) * (rank - passed)) / count;
    }
    passed += count;
    previous = bound;
  }
  return previous;
}
