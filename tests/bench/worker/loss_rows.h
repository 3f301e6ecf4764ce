// Rows of group_training: one for each validation of a run. They are kept in a CSV file
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

struct LossRow {
  uint32_t ranks = 1;
  std::string collective = "none";  // in both directions, or "forward/backward"
  double shared = 1;                // share of the channels that are summed
  uint64_t seed = 1, step = 0;
  double train_loss = 0, validation_loss = 0;
  uint64_t parameters = 0, sent_bytes_a_step = 0;
  double seconds = 0;  // of the run, up to this row

  bool IsOfRun(const LossRow& other) const {
    return ranks == other.ranks && collective == other.collective && shared == other.shared &&
           seed == other.seed;
  }

  static constexpr std::string_view kProgram = "group_training";
  static std::string Header();
  static std::optional<LossRow> Parse(std::string_view line);
};
std::string ToCsv(const LossRow& row);

// The validation losses of the runs at `step`, for each number of ranks, share and collective: the
// mean over seeds, and the difference to the run of the same ranks and seed with nothing compressed
// and share 1, in percent: the mean over seeds and its 95 % interval by Student's t. A Markdown
// table.
std::string LossTable(const std::vector<LossRow>& rows, uint64_t step);
// How flat the curves are at `step`: for each number of ranks, share and collective, by how many
// percent the validation loss has changed since the validation before, with mean and interval as
// above. A line for each; "" if no run has two validations.
std::string LastChanges(const std::vector<LossRow>& rows, uint64_t step);

}  // namespace longhaul::worker
