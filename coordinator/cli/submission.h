// A run file, its data and the weights that it begins with, checked here before anybody is dialled.
#ifndef LONGHAUL_COORDINATOR_CLI_SUBMISSION_H_
#define LONGHAUL_COORDINATOR_CLI_SUBMISSION_H_

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/terminal.h"
#include "longhaul/v1/control.pb.h"
#include "run/data/data_set.h"
#include "run/file/run_spec.h"
#include "run/published/weights.h"

namespace longhaul::cli {

struct Submission {
  RunSpec spec;
  v1::SubmitRequest request;       // data_files without hashes until HashData
  std::vector<std::string> paths;  // of request.data_files
  // Of spec.weights.from, where the run begins with a published model.
  std::optional<published::Weights> weights;
  std::optional<data::Mixture> mixture;  // of spec.data.sets
  std::string mixture_json;
  std::string weights_json;  // what the workers get of them; "" until HashWeights
};

// The run file alone, with every error at once. kInvalidArgument.
StatusOr<Submission> ReadRunFile(const std::string& file,
                                 const std::vector<std::string>& overrides);
// The run file and its data files, which can be read and are long enough. kInvalidArgument with
// every error of both at once.
StatusOr<Submission> ReadRunAndData(const std::string& file,
                                    const std::vector<std::string>& overrides);
// The data files of a spec that was read already. kInvalidArgument with every error at once.
Status FindData(Submission& submission);
// Reads all data for its hashes. Progress goes to the terminal. kCancelled on Ctrl-C.
Status HashData(const Terminal& terminal, Interrupt& interrupt, Submission& submission);
// Reads all weights for their hashes; the request then says what they are. Nothing where there are
// none. Otherwise as HashData.
Status HashWeights(const Terminal& terminal, Interrupt& interrupt, Submission& submission);
// The request says what the model is, and of its weights only where they lie: for a plan.
void DescribeModel(Submission& submission);
// Uploads the data files, and the weights that were hashed, that the coordinator lacks.
Status UploadData(const Terminal& terminal, Client& client, const Submission& submission);

}  // namespace longhaul::cli

#endif  // LONGHAUL_COORDINATOR_CLI_SUBMISSION_H_
