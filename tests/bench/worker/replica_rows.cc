#include "replica_rows.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>

#include "kept_rows.h"

namespace longhaul::worker {
namespace {

constexpr size_t kReplicaColumns = 11;

double BytesOf(const ReplicaRow& row) {
  return static_cast<double>(row.gradient_bytes + row.parameter_bytes);
}

}  // namespace

std::string ReplicaRow::Header() {
  return "replicas,form,lr,seed,step,train_loss,validation_loss,parameters,gradient_bytes_a_step,"
         "parameter_bytes_a_step,seconds\n";
}

std::optional<ReplicaRow> ReplicaRow::Parse(std::string_view line) {
  const std::vector<std::string_view> cells = CellsOf(line);
  if (cells.size() != kReplicaColumns) return std::nullopt;
  ReplicaRow row;
  row.form = std::string(cells[1]);
  const bool read =
      ReadCell(cells[0], &row.replicas) && ReadCell(cells[2], &row.lr) &&
      ReadCell(cells[3], &row.seed) && ReadCell(cells[4], &row.step) &&
      ReadCell(cells[5], &row.train_loss) && ReadCell(cells[6], &row.validation_loss) &&
      ReadCell(cells[7], &row.parameters) && ReadCell(cells[8], &row.gradient_bytes) &&
      ReadCell(cells[9], &row.parameter_bytes) && ReadCell(cells[10], &row.seconds);
  return read ? std::optional(row) : std::nullopt;
}

std::string ToCsv(const ReplicaRow& row) {
  return fmt::format("{},{},{},{},{},{:.5f},{:.5f},{},{},{},{:.1f}\n", row.replicas,
                     Quoted(row.form), row.lr, row.seed, row.step, row.train_loss,
                     row.validation_loss, row.parameters, row.gradient_bytes, row.parameter_bytes,
                     row.seconds);
}

std::string ReplicaTable(const std::vector<ReplicaRow>& rows, const std::string& base,
                         uint64_t step) {
  // In the order in which the rows came first.
  std::vector<std::string> forms;
  std::map<std::string, std::map<uint64_t, ReplicaRow>> by_form;
  for (const ReplicaRow& row : rows) {
    if (row.step != step) continue;
    if (!by_form.contains(row.form)) forms.push_back(row.form);
    by_form[row.form][row.seed] = row;
  }
  std::string table = fmt::format(
      "after {} steps; difference to {} with the same seed, in percent: mean and 95 % interval\n"
      "| form | bytes a step: gradients | parameters | times fewer | seeds | validation loss | "
      "difference |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n",
      step, base);
  const std::map<uint64_t, ReplicaRow>& of_base = by_form[base];
  for (const std::string& form : forms) {
    std::vector<double> differences;
    double losses = 0, gradients = 0, parameters = 0, bytes = 0, base_bytes = 0;
    for (const auto& [seed, row] : by_form[form]) {
      losses += row.validation_loss;
      gradients += static_cast<double>(row.gradient_bytes);
      parameters += static_cast<double>(row.parameter_bytes);
      const auto found = of_base.find(seed);
      if (form == base || found == of_base.end()) continue;
      differences.push_back(100 * (row.validation_loss / found->second.validation_loss - 1));
      bytes += BytesOf(row);
      base_bytes += BytesOf(found->second);
    }
    const auto seeds = static_cast<double>(by_form[form].size());
    table += fmt::format("| {} | {:.0f} | {:.0f} | {} | {:.0f} | {:.4f} | {} |\n", form,
                         gradients / seeds, parameters / seeds,
                         differences.empty() ? "" : fmt::format("{:.2f}", base_bytes / bytes),
                         seeds, losses / seeds, MeanAndInterval(differences));
  }
  return table;
}

}  // namespace longhaul::worker
