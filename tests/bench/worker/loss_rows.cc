#include "loss_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace longhaul::worker {
namespace {

// 97.5 % quantiles of Student's t by degrees of freedom, from 1; the last one for more.
constexpr double kQuantiles[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262,
                                 2.228,  2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101,
                                 2.093,  2.086, 2.080, 2.074, 2.069, 2.064, 2.060};
constexpr size_t kColumns = 10;

template <class T>
bool Read(std::string_view cell, T* value) {
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), *value);
  return error == std::errc() && end == cell.data() + cell.size();
}

std::optional<LossRow> ParseRow(std::string_view line) {
  const std::vector<std::string_view> cells = CellsOf(line);
  if (cells.size() != kColumns) return std::nullopt;
  LossRow row;
  row.collective = std::string(cells[1]);
  const bool read = Read(cells[0], &row.ranks) && Read(cells[2], &row.shared) &&
                    Read(cells[3], &row.seed) && Read(cells[4], &row.step) &&
                    Read(cells[5], &row.train_loss) && Read(cells[6], &row.validation_loss) &&
                    Read(cells[7], &row.parameters) && Read(cells[8], &row.sent_bytes_a_step) &&
                    Read(cells[9], &row.seconds);
  return read ? std::optional(row) : std::nullopt;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

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

std::string LossHeader() {
  return "ranks,collective,shared,seed,step,train_loss,validation_loss,parameters,"
         "sent_bytes_a_step,seconds\n";
}

std::string ToCsv(const LossRow& row) {
  const bool quoted = row.collective.find(',') != std::string::npos;
  return fmt::format("{},{}{}{},{},{},{},{:.5f},{:.5f},{},{},{:.1f}\n", row.ranks,
                     quoted ? "\"" : "", row.collective, quoted ? "\"" : "", row.shared, row.seed,
                     row.step, row.train_loss, row.validation_loss, row.parameters,
                     row.sent_bytes_a_step, row.seconds);
}

StatusOr<std::vector<LossRow>> ParseLossRows(std::string_view text) {
  const std::string header = LossHeader();
  if (!text.starts_with(header)) {
    return InvalidArgument("expected rows of group_training, whose first line is {}",
                           header.substr(0, header.size() - 1));
  }
  text.remove_prefix(header.size());
  std::vector<LossRow> rows;
  for (size_t number = 2; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const std::optional<LossRow> row = ParseRow(line);
    if (!row) return InvalidArgument("line {}: expected a row, got '{}'", number, line);
    rows.push_back(*row);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return rows;
}

std::string LossTable(const std::vector<LossRow>& rows, uint64_t step) {
  // In the order in which the rows came first.
  std::vector<std::tuple<uint32_t, double, std::string>> variants;
  std::map<std::tuple<uint32_t, double, std::string>, std::map<uint64_t, LossRow>> by_variant;
  for (const LossRow& row : rows) {
    if (row.step != step) continue;
    const std::tuple variant(row.ranks, row.shared, row.collective);
    if (!by_variant.contains(variant)) variants.push_back(variant);
    by_variant[variant][row.seed] = row;
  }
  std::string table = fmt::format(
      "validation loss after {} steps; difference to nothing compressed with the same seed, in "
      "percent: mean and 95 % interval\n"
      "| ranks | collective | shared | seeds | loss | difference | bytes a step |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n",
      step);
  for (const auto& variant : variants) {
    const auto& [ranks, shared, collective] = variant;
    const std::map<uint64_t, LossRow>& exact = by_variant[{ranks, 1.0, "none"}];
    std::vector<double> losses, differences;
    for (const auto& [seed, row] : by_variant[variant]) {
      losses.push_back(row.validation_loss);
      const auto base = exact.find(seed);
      if (&exact == &by_variant[variant] || base == exact.end()) continue;
      differences.push_back(100 * (row.validation_loss / base->second.validation_loss - 1));
    }
    table += fmt::format("| {} | {} | {} | {} | {:.4f} | {} | {} |\n", ranks, collective, shared,
                         losses.size(), Mean(losses), MeanAndInterval(differences),
                         by_variant[variant].begin()->second.sent_bytes_a_step);
  }
  return table;
}

std::string LastChanges(const std::vector<LossRow>& rows, uint64_t step) {
  struct Changes {
    std::vector<double> percent;
    uint64_t since = 0;
  };
  std::vector<std::pair<std::tuple<uint32_t, double, std::string>, Changes>> all;
  for (const LossRow& row : rows) {
    if (row.step != step) continue;
    const LossRow* before = nullptr;
    for (const LossRow& other : rows) {
      const bool earlier = other.IsOfRun(row) && other.step < step;
      if (earlier && (before == nullptr || other.step > before->step)) before = &other;
    }
    if (before == nullptr) continue;
    const std::tuple variant(row.ranks, row.shared, row.collective);
    auto found = std::ranges::find(all, variant, [](const auto& one) { return one.first; });
    if (found == all.end()) found = all.insert(all.end(), {variant, {}});
    found->second.percent.push_back(100 * (row.validation_loss / before->validation_loss - 1));
    found->second.since = before->step;
  }
  std::string text;
  for (const auto& [variant, changes] : all) {
    const auto& [ranks, shared, collective] = variant;
    text += fmt::format("{} ranks, {}, {} shared: {} % since step {}\n", ranks, collective, shared,
                        MeanAndInterval(changes.percent), changes.since);
  }
  return text;
}

}  // namespace longhaul::worker
