#include "loss_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "kept_rows.h"

namespace longhaul::worker {
namespace {

constexpr size_t kColumns = 10;

}  // namespace

std::string LossRow::Header() {
  return "ranks,collective,shared,seed,step,train_loss,validation_loss,parameters,"
         "sent_bytes_a_step,seconds\n";
}

std::optional<LossRow> LossRow::Parse(std::string_view line) {
  const std::vector<std::string_view> cells = CellsOf(line);
  if (cells.size() != kColumns) return std::nullopt;
  LossRow row;
  row.collective = std::string(cells[1]);
  const bool read = ReadCell(cells[0], &row.ranks) && ReadCell(cells[2], &row.shared) &&
                    ReadCell(cells[3], &row.seed) && ReadCell(cells[4], &row.step) &&
                    ReadCell(cells[5], &row.train_loss) &&
                    ReadCell(cells[6], &row.validation_loss) &&
                    ReadCell(cells[7], &row.parameters) &&
                    ReadCell(cells[8], &row.sent_bytes_a_step) && ReadCell(cells[9], &row.seconds);
  return read ? std::optional(row) : std::nullopt;
}

std::string ToCsv(const LossRow& row) {
  return fmt::format("{},{},{},{},{},{:.5f},{:.5f},{},{},{:.1f}\n", row.ranks,
                     Quoted(row.collective), row.shared, row.seed, row.step, row.train_loss,
                     row.validation_loss, row.parameters, row.sent_bytes_a_step, row.seconds);
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
