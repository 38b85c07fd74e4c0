//! Counters, gauges and histograms in a process, and the text that carries them out.
