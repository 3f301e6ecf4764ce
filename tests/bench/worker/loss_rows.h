// Rows of group_training: one for each validation of a run. They are kept in a CSV file, which
// later calls go on with.
//
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

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
};

// Both with a newline at the end.
std::string LossHeader();
std::string ToCsv(const LossRow& row);
// Reads a file that begins with LossHeader. kInvalidArgument names the line that is wrong.
StatusOr<std::vector<LossRow>> ParseLossRows(std::string_view text);

// Cells of a line of CSV. A cell in double quotes may have commas, and no quotes.
std::vector<std::string_view> CellsOf(std::string_view line);
// "+0.12 (-0.03 to +0.27)": the mean, and its 95 % interval by Student's t; without the interval if
// there is one value, "" if there is none.
std::string MeanAndInterval(const std::vector<double>& values);

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
