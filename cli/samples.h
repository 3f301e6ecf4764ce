// Shows texts that a run sampled while it trains, and asks for new ones.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/program.h"
#include "cli/terminal.h"
#include "longhaul/v1/control.pb.h"
#include "run/data/data_set.h"
#include "run/file/run_spec.h"

namespace longhaul::cli {

// What a tokenizer says of texts and of itself.
struct Tokenized {
  std::vector<std::vector<uint32_t>> ids;  // of each text
  std::vector<uint32_t> stop;              // tokens that end a text; at most kMostSampleStops
  std::vector<std::string> pieces;         // bytes of each token; empty: a token is a byte
};
// Tokenizes with the tokenizer in `folder`. With `chat` each text is what a user says, in the
// tokenizer's chat template.
using TokenizeTexts = std::function<StatusOr<Tokenized>(
    const std::string& folder, const std::vector<std::string>& texts, bool chat)>;
// Sets the function by which commands tokenize. Without it, a run whose tokens are not bytes needs
// ids.
void SetTokenizeTexts(TokenizeTexts tokenize);

// Tokenizes for a run. `tokenizer`: a folder; "": that of the run's data sets or of the model that
// it began with, which must be on this machine. Runs over text files have a token for each byte.
// kFailedPrecondition: there is no tokenizer.
StatusOr<Tokenized> TokenizeFor(const RunSpec& spec, const std::string& tokenizer,
                                const std::vector<std::string>& texts, bool chat);

// Returns the lines of one round, no wider than `columns`; 0: as wide as they are.
std::vector<std::string> SampleLines(const v1::SampleRound& round, int columns);
// Prints the round: each prompt with the text that follows it.
void PrintRound(const Terminal& terminal, const v1::SampleRound& round);

// Prints the newest texts that the run file's `samples` asked for. Returns the exit code.
StatusOr<int> ShowNewestSamples(Invocation& invocation, const v1::RunStatus& run);

struct SampleOptions {
  std::string prompt;
  std::string tokenizer;  // as for TokenizeFor
  bool chat = false;
  uint32_t tokens = 64, top_k = 0;
  double temperature = 0, top_p = 1;
  uint64_t seed = 1;
};
// Has the pipeline of a run that trains continue the prompt between two steps, and prints the text.
// Waits as long as a step takes. `run`: with its plan. Returns the exit code.
StatusOr<int> SampleNow(Invocation& invocation, const v1::RunStatus& run,
                        const SampleOptions& options);

}  // namespace longhaul::cli
