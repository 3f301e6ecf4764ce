#include "run/file/link_quality.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/units.h"

namespace longhaul {
namespace {

constexpr uint64_t kMinRate = 64'000;
constexpr uint64_t kMaxRate = 100'000'000'000;

}  // namespace

LinkQuality Worse(const LinkQuality& a, const LinkQuality& b) {
  return {std::max(a.delay, b.delay), std::max(a.jitter, b.jitter), std::max(a.loss, b.loss)};
}

StatusOr<uint64_t> ParseLinkRate(std::string_view text) {
  if (text == "unlimited") return 0;
  StatusOr<uint64_t> rate = ParseBitsPerSecond(text);
  if (!rate.ok()) {
    return InvalidArgument("rate '{}': {}; or \"unlimited\"", text, Message(rate.status()));
  }
  if (*rate < kMinRate || *rate > kMaxRate) {
    return InvalidArgument("rate '{}': expected 64kbit to 100gbit, or \"unlimited\"", text);
  }
  return rate;
}

StatusOr<absl::Duration> ParseLinkDelay(std::string_view text) {
  LH_ASSIGN_OR_RETURN(const absl::Duration delay, ParseDuration(text));
  if (delay > kMaxLinkDelay) {
    return InvalidArgument("'{}': expected 0 to {}", text, longhaul::FormatDuration(kMaxLinkDelay));
  }
  return delay;
}

StatusOr<double> ParseLoss(std::string_view text) {
  double percent = 0;
  const std::string_view digits = text.substr(0, text.find('%'));
  const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), percent);
  const bool number = error == std::errc() && rest == digits.data() + digits.size() &&
                      text.size() == digits.size() + 1;
  if (!number && text != "0") {
    return InvalidArgument("loss '{}': expected a percentage such as 0.1%", text);
  }
  if (!(percent >= 0) || percent > 100) {
    return InvalidArgument("loss '{}': expected 0% to below 100%", text);
  }
  if (percent == 100) {
    return absl::InvalidArgumentError(
        "loss '100%': nothing would arrive; a line that is cut is `longhaul cluster link WORKER "
        "--down`");
  }
  return percent / 100;
}

Status CheckLinkQuality(const LinkQuality& quality) {
  if (quality.jitter <= quality.delay) return absl::OkStatus();
  return InvalidArgument(
      "a jitter of {} is more than the delay of {}, and packets would arrive before "
      "they were sent; lower the jitter or raise the delay",
      longhaul::FormatDuration(quality.jitter), longhaul::FormatDuration(quality.delay));
}

std::string FormatLinkRate(uint64_t bits_per_second) {
  if (bits_per_second == 0) return "unlimited";
  return FormatBitsPerSecond(static_cast<double>(bits_per_second));
}

std::string FormatLinkQuality(const LinkQuality& quality) {
  std::string text;
  if (quality.delay != absl::ZeroDuration()) text = longhaul::FormatDuration(quality.delay);
  if (quality.jitter != absl::ZeroDuration()) {
    text += " +- " + longhaul::FormatDuration(quality.jitter);
  }
  if (quality.loss > 0) {
    text += fmt::format("{}{:.3g} % lost", text.empty() ? "" : ", ", quality.loss * 100);
  }
  return text;
}

}  // namespace longhaul
