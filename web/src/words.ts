// Completion of names in an expression.

/** Functions and words of PromQL that are offered beside the names of metrics. */
const WORDS = [
  "abs(",
  "absent(",
  "avg by (",
  "avg_over_time(",
  "ceil(",
  "changes(",
  "clamp_max(",
  "clamp_min(",
  "count by (",
  "delta(",
  "deriv(",
  "histogram_quantile(",
  "increase(",
  "irate(",
  "label_replace(",
  "last_over_time(",
  "max by (",
  "max_over_time(",
  "min by (",
  "min_over_time(",
  "predict_linear(",
  "quantile_over_time(",
  "rate(",
  "resets(",
  "stddev_over_time(",
  "sum by (",
  "sum_over_time(",
  "time()",
  "timestamp(",
  "topk(",
];
/** Offers at a time. */
const OFFERS = 8;

/** Returns the word that ends at `caret`, and where it stands. */
export function wordAt(text: string, caret: number): { text: string; from: number; to: number } {
  let from = caret;
  while (from > 0 && /[\w:]/.test(text[from - 1] ?? "")) from -= 1;
  return { text: text.slice(from, caret), from, to: caret };
}

/** Returns what `word` may become: beginnings first, then names with `word` in them. */
export function complete(word: string, names: string[]): string[] {
  if (word.length < 2) return [];
  const small = word.toLowerCase();
  const all = [...WORDS, ...names].filter((name) => name !== word);
  const begins = all.filter((name) => name.toLowerCase().startsWith(small));
  const has = all.filter((name) => !name.toLowerCase().startsWith(small) && name.toLowerCase().includes(small));
  return [...begins, ...has].slice(0, OFFERS);
}
