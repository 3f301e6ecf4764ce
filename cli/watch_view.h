// Formats a run's state as text. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal.h"
#include "longhaul/v1/control.pb.h"

namespace longhaul::cli {

// Returns the lines of the live view: title, reason, progress bar, numbers, stages, links, the
// newest samples. No line is wider than `columns`.
std::vector<std::string> WatchLines(const v1::RunStatus& run, int columns, bool colour);

// "2026-11-21T01:30:49.123Z tiny-wan-abc123 running step 57/200 loss 2.43 ...".
std::string PlainWatchLine(const v1::RunStatus& run, int64_t now_unix_ms);

// Whether the plain output should show `next`: its step, state, reason, epoch, validation,
// checkpoint or samples differ from those of `last`. HasNewSamples: its newest round of samples.
bool HasNews(const v1::RunStatus& last, const v1::RunStatus& next);
bool HasNewSamples(const v1::RunStatus& last, const v1::RunStatus& next);

// Prints everything about a run, for `longhaul status`.
void PrintStatus(const Terminal& terminal, const v1::RunStatus& run);

}  // namespace longhaul::cli
