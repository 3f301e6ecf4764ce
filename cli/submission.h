// Reads and checks a run file with its data and initial weights, before any coordinator is called.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/client.h"
#include "cli/terminal.h"
#include "longhaul/v1/control.pb.h"
#include "run/data/data_set.h"
#include "run/file/run_spec.h"
#include "run/published/weights.h"

namespace longhaul::cli {

struct Submission {
  RunSpec spec;
  v1::SubmitRequest request;       // data_files have no hashes until HashData
  std::vector<std::string> paths;  // path of each of request.data_files, in the same order
  // Set if spec.weights.from names a published model.
  std::optional<published::Weights> weights;
  // Set if spec.weights.adapters names adapters.
  std::optional<published::Weights> adapters;
  // The data sets that spec.data.sets names; nullopt if it names none or until the data is read.
  std::optional<data::Mixture> mixture;
  std::string mixture_json;  // `mixture` as workers get it; "" without data sets
  std::string pieces;        // the table of the bytes of tokens (spec.samples); "" without one
  // `weights` and `adapters`, as workers get them; "" until HashWeights.
  std::string weights_json;
};

// Reads the run file, and the folders of the published model and of adapters that it names, but no
// data.
// kInvalidArgument has every error at once.
StatusOr<Submission> ReadRunFile(const std::string& file,
                                 const std::vector<std::string>& overrides);
// As ReadRunFile, and checks that the data files are readable and long enough. kInvalidArgument has
// every error of the run file and its data at once. `folder`: the one that paths in the file are
// relative to; "": that of the file.
StatusOr<Submission> ReadRunAndData(const std::string& file,
                                    const std::vector<std::string>& overrides,
                                    const std::string& folder = "");
// As ReadRunAndData, for the text of a run file. `file`: its path for messages; paths in the text
// are relative to its folder.
StatusOr<Submission> ReadTextAndData(const std::string& text, const std::string& file,
                                     const std::vector<std::string>& overrides);
// Finds the data files or data sets of submission.spec, and adds them to `submission`.
// kInvalidArgument has every error at once.
Status FindData(Submission& submission);
// Reads all text files, and puts their hashes and sizes into the request. Data sets have hashes
// already. Shows progress on the terminal. kCancelled on Ctrl-C.
Status HashData(const Terminal& terminal, Interrupt& interrupt, Submission& submission);
// Reads all weights and adapters, computes their hashes, and puts the hash of the list of weights
// into the request. Shows progress and can be interrupted as HashData. Does nothing without
// weights.
Status HashWeights(const Terminal& terminal, Interrupt& interrupt, Submission& submission);
// For a plan, which needs no hashes: puts the model's description and the weights' location into
// the request.
void DescribeModel(Submission& submission);
// Uploads data files, chunks of data sets and hashed weights that the coordinator lacks. Call
// HashData and HashWeights first. Shows progress on the terminal. Errors: those of Client::Call,
// and the system's for a file that cannot be read.
Status UploadData(const Terminal& terminal, Client& client, const Submission& submission);

}  // namespace longhaul::cli
