// Formats values of messages for people. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "cli/terminal.h"
#include "longhaul/v1/control.pb.h"

namespace longhaul::cli {

// Local time "2026-11-21 01:30:49" for a terminal, else UTC "2026-11-21T01:30:49.123Z". 0 gives "".
std::string TimeText(int64_t unix_ms, bool terminal);
// "2m05s" for a positive number of seconds, else "".
std::string SecondsText(double seconds);
// "12%" for 0.12.
std::string PercentText(double share);
// "1,234,567": rounded to a whole number. "inf" or "nan" if `value` is not finite.
std::string GroupedText(double value);
// Seven significant digits: enough to see a loss fall.
std::string LossText(double loss);
// Returns LossText of the run's loss. A replay has no loss; the text then says so.
std::string RunLossText(const v1::RunStatus& run);
// Formats all digits: two texts are equal if and only if the numbers are.
std::string ExactText(double value);
// Step 57 of 200 is "57/200", or "57" if the number of steps is unknown.
std::string StepText(const v1::RunStatus& run);
// "1/2": one replica trains, and two are wanted. "" if no replica trains yet, or if one trains and
// only one is wanted.
std::string ReplicasText(const v1::RunStatus& run);

bool HasEnded(const v1::RunStatus& run);
// Returns the color for a state of a run or of a link; kPlain for other texts.
Style StateStyle(const std::string& state);
// A sentence on what the user can do about a run in this state; "": nothing.
std::string Advice(const v1::RunStatus& run);

}  // namespace longhaul::cli
