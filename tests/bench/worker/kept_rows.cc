#include "kept_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/file.h"

namespace longhaul::worker {
namespace {

// 97.5 % quantiles of Student's t by degrees of freedom, from 1; the last one for more.
constexpr double kQuantiles[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262,
                                 2.228,  2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101,
                                 2.093,  2.086, 2.080, 2.074, 2.069, 2.064, 2.060};

}  // namespace

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

std::vector<std::string_view> CellsOf(std::string_view line) {
  std::vector<std::string_view> cells;
  while (true) {
    const bool quoted = line.starts_with('"');
    const size_t close = quoted ? line.find('"', 1) : 0;
    const size_t comma = line.find(',', close == std::string_view::npos ? line.size() : close);
    std::string_view cell = line.substr(0, comma);
    if (quoted && cell.size() >= 2 && cell.ends_with('"')) cell = cell.substr(1, cell.size() - 2);
    cells.push_back(cell);
    if (comma == std::string_view::npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

std::string MeanAndInterval(const std::vector<double>& values) {
  if (values.empty()) return "";
  const double mean = Mean(values);
  if (values.size() == 1) return fmt::format("{:+.2f}", mean);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const auto count = static_cast<double>(values.size());
  const double quantile = kQuantiles[std::min(values.size() - 2, std::size(kQuantiles) - 1)];
  const double half = quantile * std::sqrt(squares / (count - 1) / count);
  return fmt::format("{:+.2f} ({:+.2f} to {:+.2f})", mean, mean - half, mean + half);
}

std::string Quoted(const std::string& cell) {
  return cell.find(',') == std::string::npos ? cell : "\"" + cell + "\"";
}

StatusOr<absl::Duration> ParseLimit(const std::string& text) {
  absl::Duration limit = absl::InfiniteDuration();
  if (!text.empty() && !absl::ParseDuration(text, &limit)) {
    return InvalidArgument("--limit: expected a time such as 8m, got '{}'", text);
  }
  return limit;
}

}  // namespace longhaul::worker
