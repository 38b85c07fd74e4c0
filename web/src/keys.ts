// Keys of the pages: what each does is here, and `?` shows this list.

/** A key, where it works, and what it does. */
export interface Key {
  key: string;
  text: string;
}

/** Every key. */
export const KEYS: Key[] = [
  { key: "1", text: "farm" },
  { key: "2", text: "explorer" },
  { key: "3", text: "alarms" },
  { key: "4", text: "sources" },
  { key: "5", text: "files" },
  { key: "/", text: "to the filter, or to the expression" },
  { key: "[  ]", text: "node before, node after" },
  { key: "p", text: "hold the chart of the explorer, or go on" },
  { key: "t", text: "light, dark" },
  { key: "?", text: "these keys" },
  { key: "Esc", text: "close, leave a field" },
  { key: "Tab", text: "in the explorer: take the first name offered" },
];

/** What a key asks for. */
export type Wish = { go: string } | { press: string } | { focus: string } | { do: "theme" | "help" | "close" } | null;

const PATHS = ["/", "/explore", "/alarms", "/sources", "/files"];

/** Returns what `key` asks for; within a field only Esc does. */
export function wish(key: string, isInField: boolean): Wish {
  if (key === "Escape") return { do: "close" };
  if (isInField) return null;
  const path = PATHS[Number(key) - 1];
  if (path !== undefined) return { go: path };
  switch (key) {
    case "/":
      return { focus: "filter" };
    case "[":
      return { press: "previous" };
    case "]":
      return { press: "next" };
    case "p":
      return { press: "pause" };
    case "t":
      return { do: "theme" };
    case "?":
      return { do: "help" };
    default:
      return null;
  }
}
