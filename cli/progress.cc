#include "cli/progress.h"

#include <fmt/core.h>

#include <utility>

#include "base/units.h"

namespace longhaul::cli {
namespace {

constexpr absl::Duration kSilent = absl::Seconds(2);
constexpr absl::Duration kRedraw = absl::Milliseconds(200);
constexpr absl::Duration kNewLine = absl::Seconds(10);

}  // namespace

Progress::Progress(const Terminal& terminal, std::string what, std::function<MonoTime()> now)
    : terminal_(terminal),
      what_(std::move(what)),
      now_(std::move(now)),
      start_(now_()),
      next_(start_ + kSilent) {}

Progress::~Progress() {
  if (shown_ && terminal_.err_is_terminal) terminal_.err << "\r\033[K" << std::flush;
}

void Progress::Bytes(uint64_t done, uint64_t total) {
  if (now_() < next_) return;
  if (total == 0 || done == 0) {
    Say(FormatBytes(static_cast<double>(done)));
    return;
  }
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const absl::Duration left = (now_() - start_) * (1 / share - 1);
  Say(fmt::format("{} of {}, {:.0f}%, {} left", FormatBytes(static_cast<double>(done)),
                  FormatBytes(static_cast<double>(total)), 100 * share,
                  longhaul::FormatDuration(left)));
}

void Progress::Say(std::string_view text) {
  const MonoTime now = now_();
  if (now < next_) return;
  std::string line = what_;
  if (!text.empty()) line += fmt::format(": {}", text);
  if (terminal_.err_is_terminal) {
    terminal_.err << "\r\033[K" << Shortened(line, terminal_.size().columns - 1) << std::flush;
    next_ = now + kRedraw;
  } else {
    terminal_.err << line << std::endl;
    next_ = now + kNewLine;
  }
  shown_ = true;
}

}  // namespace longhaul::cli
