#include "base/units.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

namespace longhaul {
namespace {

struct Unit {
  std::string_view name;  // lower case
  uint64_t factor;
};

constexpr std::array<Unit, 5> kRateUnits{{{"bit", 1},
                                          {"kbit", 1'000},
                                          {"mbit", 1'000'000},
                                          {"gbit", 1'000'000'000},
                                          {"tbit", 1'000'000'000'000}}};
constexpr std::array<Unit, 10> kByteUnits{{{"", 1},
                                           {"b", 1},
                                           {"kb", 1'000},
                                           {"mb", 1'000'000},
                                           {"gb", 1'000'000'000},
                                           {"tb", 1'000'000'000'000},
                                           {"kib", 1ull << 10},
                                           {"mib", 1ull << 20},
                                           {"gib", 1ull << 30},
                                           {"tib", 1ull << 40}}};
// In nanoseconds.
constexpr std::array<Unit, 7> kTimeUnits{{{"ns", 1},
                                          {"us", 1'000},
                                          {"ms", 1'000'000},
                                          {"s", 1'000'000'000},
                                          {"m", 60'000'000'000},
                                          {"h", 3'600'000'000'000},
                                          {"d", 86'400'000'000'000}}};

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}
bool IsLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Reads "<digits>[.<digits>][ ]<unit>" off the front of `rest` as an exact integer (rounded down to
// the base unit). Nothing where it is not that, or does not fit 64 bits.
std::optional<uint64_t> TakeQuantity(std::string_view& rest, std::span<const Unit> units) {
  constexpr int kMaxDigits = 20;  // of 2^64
  unsigned __int128 mantissa = 0;
  unsigned __int128 divisor = 1;
  int digits = 0;
  bool point = false;
  size_t i = 0;
  for (; i < rest.size() && (IsDigit(rest[i]) || (rest[i] == '.' && !point)); ++i) {
    if (rest[i] == '.') {
      point = true;
      continue;
    }
    if (++digits > kMaxDigits) return std::nullopt;
    mantissa = mantissa * 10 + static_cast<unsigned>(rest[i] - '0');
    if (point) divisor *= 10;
  }
  if (digits == 0 || (i > 0 && rest[i - 1] == '.')) return std::nullopt;
  while (i < rest.size() && rest[i] == ' ') ++i;
  std::string name;
  for (; i < rest.size() && IsLetter(rest[i]); ++i) {
    name.push_back(static_cast<char>(rest[i] | 0x20));
    if (name.size() > 4) return std::nullopt;
  }
  for (const Unit& unit : units) {
    if (unit.name != name) continue;
    // mantissa < 10^20 and factor < 2^57: no overflow of 128 bits.
    const unsigned __int128 value = mantissa * unit.factor / divisor;
    if (value > std::numeric_limits<uint64_t>::max()) return std::nullopt;
    rest.remove_prefix(i);
    return static_cast<uint64_t>(value);
  }
  return std::nullopt;
}

Status Bad(std::string_view what, std::string_view text, std::string_view units) {
  constexpr size_t kShown = 40;
  return InvalidArgument("expected {}, got '{}{}'; {}", what, text.substr(0, kShown),
                         text.size() > kShown ? "..." : "", units);
}

// Three significant digits of a value below 1000.
std::string Three(double value) {
  return fmt::format("{:.3g}", value);
}

// `value` in the largest unit in which it is at least 1, three significant digits.
std::string Scaled(double value, std::span<const std::string_view> units) {
  if (std::isnan(value)) return fmt::format("? {}", units[0]);
  if (value < 0) return "-" + Scaled(-value, units);
  size_t unit = 0;
  // 999.5 would print as 1e+03.
  while (value >= 999.5 && unit + 1 < units.size()) {
    value /= 1000;
    ++unit;
  }
  if (value >= 999.5) return fmt::format("{:.0f} {}", value, units[unit]);
  if (value < 1 && unit == 0) return fmt::format("{:.0f} {}", value, units[0]);
  return fmt::format("{} {}", Three(value), units[unit]);
}

}  // namespace

StatusOr<uint64_t> ParseBitsPerSecond(std::string_view text) {
  std::string_view rest = text;
  const std::optional<uint64_t> value = TakeQuantity(rest, kRateUnits);
  if (value && rest.empty()) return *value;
  return Bad("a rate such as 100mbit", text, "units are bit, kbit, mbit, gbit, tbit (per second)");
}

StatusOr<uint64_t> ParseBytes(std::string_view text) {
  std::string_view rest = text;
  const std::optional<uint64_t> value = TakeQuantity(rest, kByteUnits);
  if (value && rest.empty()) return *value;
  return Bad("a size such as 64KiB or 2GiB", text,
             "units are B, KB, MB, GB, TB (x1000) and KiB, MiB, GiB, TiB (x1024)");
}

StatusOr<absl::Duration> ParseDuration(std::string_view text) {
  constexpr uint64_t kMost = 100ull * 365 * 86'400 * 1'000'000'000;  // a century
  if (text == "0") return absl::ZeroDuration();
  std::string_view rest = text;
  uint64_t total = 0;
  bool good = !rest.empty();
  while (good && !rest.empty()) {
    const std::optional<uint64_t> part = TakeQuantity(rest, kTimeUnits);
    good = part && *part <= kMost - total;
    if (good) total += *part;
  }
  if (good) return absl::Nanoseconds(static_cast<int64_t>(total));
  return Bad("a duration such as 20ms, 1.5s or 2m30s", text,
             "units are ns, us, ms, s, m, h, d; at most 36500d");
}

std::string FormatBitsPerSecond(double bits_per_second) {
  constexpr std::array<std::string_view, 5> kUnits{"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"};
  return Scaled(bits_per_second, kUnits);
}

std::string FormatBytes(double bytes) {
  constexpr std::array<std::string_view, 6> kUnits{"B", "KB", "MB", "GB", "TB", "PB"};
  return Scaled(bytes, kUnits);
}

std::string FormatDuration(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return "forever";
  if (duration < absl::ZeroDuration()) return "-" + longhaul::FormatDuration(-duration);
  const double seconds = absl::ToDoubleSeconds(duration);
  if (seconds == 0) return "0 s";
  if (seconds < 1e-6) return fmt::format("{:.3g} ns", seconds * 1e9);
  if (seconds < 0.9995e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 0.9995) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.3g} s", seconds);
  const int64_t whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  const int64_t minutes = std::llround(seconds / 60);
  if (minutes < 24 * 60) return fmt::format("{}h{:02}m", minutes / 60, minutes % 60);
  const int64_t hours = std::llround(seconds / 3600);
  return fmt::format("{}d{:02}h", hours / 24, hours % 24);
}

}  // namespace longhaul
