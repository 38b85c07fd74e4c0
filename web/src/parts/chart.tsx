// A chart of lines over time: uPlot in a box of fixed height, in the colours of the page.

import { useContext, useEffect, useRef } from "preact/hooks";
import { createContext } from "preact";
import uPlot from "uplot";
import { clock, of, type Kind } from "../format";

/** Whether the page is dark: charts are drawn anew when that changes. */
export const Dark = createContext(false);

/** One line: its name, values at the times of the chart, colour by its place unless said. */
export interface Line {
  name: string;
  values: (number | null)[];
  color?: string;
}

/** Number of colours for lines in the style sheet. */
const COLORS = 8;

/** Returns the colour of the line at `place`. */
export function lineColor(place: number): string {
  return `var(--line-${place % COLORS})`;
}

function resolved(color: string, style: CSSStyleDeclaration): string {
  const found = /^var\((--[\w-]+)\)$/.exec(color);
  return found?.[1] ? style.getPropertyValue(found[1]).trim() : color;
}

interface Props {
  times: number[];
  lines: Line[];
  unit: Kind;
  /** Changes with the values. */
  version: number;
  /** Changes with the lines. */
  shape: string;
  span_s: number;
  /** Text for readers that see no picture. */
  label: string;
  hasLegend?: boolean;
}

/** Draws lines over time. */
export function Chart({ times, lines, unit, version, shape, span_s, label, hasLegend = true }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const isDark = useContext(Dark);
  const data = () => [times, ...lines.map(({ values }) => values)] as uPlot.AlignedData;

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const style = getComputedStyle(element);
    const css = (name: string) => style.getPropertyValue(name).trim();
    const em = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const axis = {
      stroke: css("--dim"),
      font: `${Math.round(em * 0.75)}px ${css("--font")}`,
      grid: { stroke: css("--grid"), width: 1 },
      ticks: { show: false },
    };
    const options: uPlot.Options = {
      width: Math.max(80, element.clientWidth),
      height: Math.max(60, element.clientHeight),
      legend: { show: false },
      padding: [em * 0.5, em * 0.25, 0, 0],
      cursor: { points: { size: em * 0.5 }, drag: { x: false, y: false }, sync: { key: "time" } },
      scales: {
        x: { time: true, range: (_, __, max) => [max - span_s, max] },
        y: { range: (_, min, max) => bounds(min, max) },
      },
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      axes: [
        {
          ...axis,
          size: em * 1.6,
          gap: 4,
          space: em * 5,
          values: (_, all) => all.map((at) => clock(at * 1000).slice(0, span_s > 600 ? 5 : 8)),
        },
        { ...axis, size: em * 4.4, gap: 6, space: em * 2.2, values: (_, all) => all.map((value) => of(unit, value)) },
      ],
      series: [
        {},
        ...lines.map(({ name, color }, place) => ({
          label: name,
          stroke: resolved(color ?? lineColor(place), style),
          width: Math.max(1.5, em / 10),
          points: { show: false },
          spanGaps: false,
        })),
      ],
      hooks: { setCursor: [(one) => tell(one, element)] },
    };
    plot.current = new uPlot(options, data(), element);
    const observer = new ResizeObserver(() => {
      plot.current?.setSize({ width: Math.max(80, element.clientWidth), height: Math.max(60, element.clientHeight) });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape, isDark, unit, span_s]);

  useEffect(() => plot.current?.setData(data()), [version]);

  /** Shows the values under the cursor in the legend. */
  const tell = (one: uPlot, element: HTMLElement) => {
    const place = one.cursor.idx;
    const cells = element.parentElement?.querySelectorAll<HTMLElement>("[data-line]");
    cells?.forEach((cell) => {
      const column = one.data[Number(cell.dataset["line"]) + 1];
      const at = place ?? lastPlace(column);
      cell.textContent = of(unit, column?.[at]);
    });
  };

  return (
    <div class="chart">
      {hasLegend && (
        <ul class="legend">
          {lines.map(({ name, values, color }, place) => (
            <li key={name}>
              <i style={{ background: color ?? lineColor(place) }} />
              <span>{name}</span>
              <b data-line={place}>{of(unit, values[lastPlace(values)])}</b>
            </li>
          ))}
        </ul>
      )}
      <div class="plot" ref={box} role="img" aria-label={label} />
      {times.length === 0 && <p class="nothing">no values in this time</p>}
    </div>
  );
}

/** Place of the latest value: the newest column may not have one yet. */
function lastPlace(values: ArrayLike<number | null | undefined> | undefined): number {
  const length = values?.length ?? 0;
  for (let place = length - 1; place >= Math.max(0, length - 3); place -= 1)
    if (values?.[place] != null) return place;
  return length - 1;
}

/** Bounds of the vertical axis: from zero where all values are positive, with room above. */
function bounds(min: number | null, max: number | null): [number, number] {
  if (min == null || max == null || !Number.isFinite(min) || !Number.isFinite(max)) return [0, 1];
  const low = min >= 0 ? 0 : min * 1.1;
  const high = max > 0 ? max * 1.12 : 0;
  return low === high ? [low, low + 1] : [low, high];
}
