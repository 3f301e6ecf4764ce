#include "cli/format.h"

#include <fmt/core.h>

#include <cmath>

#include "absl/time/time.h"
#include "base/units.h"

namespace longhaul::cli {

std::string TimeText(int64_t unix_ms, bool terminal) {
  if (unix_ms == 0) return "";
  const absl::Time time = absl::FromUnixMillis(unix_ms);
  return terminal ? absl::FormatTime("%Y-%m-%d %H:%M:%S", time, absl::LocalTimeZone())
                  : absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

std::string SecondsText(double seconds) {
  return seconds > 0 ? longhaul::FormatDuration(absl::Seconds(seconds)) : "";
}

std::string PercentText(double share) {
  return fmt::format("{:.0f}%", 100 * share);
}

std::string GroupedText(double value) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  const std::string digits = fmt::format("{:.0f}", value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    const size_t left = digits.size() - i;
    if (i > 0 && left % 3 == 0 && digits[i - 1] != '-') text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

std::string RunLossText(const v1::RunStatus& run) {
  return run.replay_source().empty() ? LossText(run.loss()) : "none (replay)";
}

std::string LossText(double loss) {
  return fmt::format("{:.7g}", loss);
}

std::string ExactText(double value) {
  return fmt::format("{:.17g}", value);
}

std::string ReplicasText(const v1::RunStatus& run) {
  if (run.replicas() == 0 || (run.replicas() == 1 && run.replicas_wanted() <= 1)) return "";
  return fmt::format("{}/{}", run.replicas(), run.replicas_wanted());
}

std::string StepText(const v1::RunStatus& run) {
  return run.steps() > 0 ? fmt::format("{}/{}", run.step(), run.steps())
                         : fmt::format("{}", run.step());
}

bool HasEnded(const v1::RunStatus& run) {
  return run.state() == "done" || run.state() == "stopped" || run.state() == "failed";
}

Style StateStyle(const std::string& state) {
  if (state == "failed" || state == "lost") return Style::kRed;
  if (state == "running" || state == "done" || state == "healthy") return Style::kGreen;
  if (state == "stopped" || state == "suspect" || state == "detached" || state == "recovering" ||
      state == "queued") {
    return Style::kYellow;
  }
  return Style::kPlain;
}

std::string Advice(const v1::RunStatus& run) {
  const std::string id = Printable(run.run_id());
  if (run.state() == "queued") {
    return "It starts by itself when enough workers are free; `longhaul workers` lists them and "
           "`longhaul ps` what holds them.";
  }
  std::string go_on =
      run.checkpoint_step() > 0
          ? fmt::format(
                "Go on from the checkpoint of step {} with `longhaul submit FILE --resume`.",
                run.checkpoint_step())
          : "No checkpoint was written; submit it again to start over.";
  if (run.state() == "failed") {
    return fmt::format("`longhaul events {0}` and `longhaul logs {0}` tell what happened. {1}", id,
                       go_on);
  }
  if (run.state() == "stopped") return go_on;
  return "";
}

}  // namespace longhaul::cli
