// Rows of replica_training: one for each validation of a run. They are kept in a CSV file
// (kept_rows.h).
//
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::worker {

struct ReplicaRow {
  uint32_t replicas = 2;
  std::string form = "none/fp32";  // pipeline.gradients/pipeline.parameters
  double lr = 0;
  uint64_t seed = 1, step = 0;
  double train_loss = 0, validation_loss = 0;
  uint64_t parameters = 0;
  // What all replicas sent, a step, mean over the steps up to this row. Gradients include indices,
  // unions and sketches.
  uint64_t gradient_bytes = 0, parameter_bytes = 0;
  double seconds = 0;  // of the run, up to this row

  bool IsOfRun(const ReplicaRow& other) const {
    return replicas == other.replicas && form == other.form && lr == other.lr && seed == other.seed;
  }

  static constexpr std::string_view kProgram = "replica_training";
  static std::string Header();
  static std::optional<ReplicaRow> Parse(std::string_view line);
};

std::string ToCsv(const ReplicaRow& row);

// For each form, at `step`: bytes, and how many times fewer than those of `base`; the validation
// loss, mean over seeds, and its difference to that of `base` with the same seed, in percent: mean
// and 95 % interval. A Markdown table.
std::string ReplicaTable(const std::vector<ReplicaRow>& rows, const std::string& base,
                         uint64_t step);

}  // namespace longhaul::worker
