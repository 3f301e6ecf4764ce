#include "cli/samples.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "base/printable.h"
#include "cli/format.h"
#include "run/tokens/sample_text.h"

namespace longhaul::cli {
namespace {

namespace fs = std::filesystem;

// A step of a slow run takes minutes, and the coordinator waits for it.
constexpr absl::Duration kSampleLimit = absl::Minutes(16);

TokenizeTexts& Function() {
  static TokenizeTexts function;
  return function;
}

// Folders that may have the run's tokenizer, the best first.
std::vector<std::string> FoldersOf(const RunSpec& spec) {
  std::vector<std::string> folders;
  for (const DataSource& set : spec.data.sets) folders.push_back(set.from + "/tokenizer");
  if (!spec.weights.from.empty()) folders.push_back(spec.weights.from);
  return folders;
}

// "new line" in one line of a terminal.
std::string InOneLine(std::string_view text) {
  std::string line;
  for (const char c : PrintableLines(text)) {
    if (c == '\n') {
      line += "\\n";
    } else {
      line += c;
    }
  }
  return line;
}

std::string IdsText(const google::protobuf::RepeatedField<uint32_t>& ids) {
  return fmt::format("tokens {}", fmt::join(ids, " "));
}

}  // namespace

void SetTokenizeTexts(TokenizeTexts tokenize) {
  Function() = std::move(tokenize);
}

StatusOr<Tokenized> TokenizeFor(const RunSpec& spec, const std::string& tokenizer,
                                const std::vector<std::string>& texts, bool chat) {
  if (spec.data.sets.empty() && tokenizer.empty()) {
    if (chat) {
      return absl::FailedPreconditionError(
          "--chat: the run's tokens are bytes, which have no chat template; leave --chat out");
    }
    Tokenized bytes;
    for (const std::string& text : texts) {
      std::vector<uint32_t>& ids = bytes.ids.emplace_back();
      for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
    }
    return bytes;
  }
  std::vector<std::string> folders = {tokenizer};
  if (tokenizer.empty()) folders = FoldersOf(spec);
  for (const std::string& folder : folders) {
    std::error_code error;
    if (!fs::exists(fs::path(folder) / "tokenizer.json", error)) continue;
    if (!Function()) return absl::FailedPreconditionError("this program has no tokenizers");
    return Function()(folder, texts, chat);
  }
  return FailedPrecondition(
      "the run's prompts need its tokenizer, and there is no tokenizer.json in {}; copy it there, "
      "or name another folder (generate --tokenizer) or the prompts' tokens (samples.ids)",
      fmt::join(folders, " or "));
}

std::vector<std::string> SampleLines(const v1::SampleRound& round, int columns) {
  std::vector<std::string> lines;
  const auto add = [&](std::string line) {
    lines.push_back(columns > 0 ? Shortened(std::move(line), columns) : std::move(line));
  };
  if (!round.problem().empty()) {
    add(fmt::format("no samples after step {}: {}", round.step(), Printable(round.problem())));
  }
  for (const v1::Sample& sample : round.samples()) {
    add(fmt::format("sample (step {}): {} > {}", round.step(), InOneLine(sample.prompt()),
                    sample.text().empty() ? IdsText(sample.ids()) : InOneLine(sample.text())));
  }
  return lines;
}

void PrintRound(const Terminal& terminal, const v1::SampleRound& round) {
  terminal.out << fmt::format("step {}\n", round.step());
  if (!round.problem().empty()) terminal.out << Printable(round.problem()) << '\n';
  for (const v1::Sample& sample : round.samples()) {
    const bool has_text = !sample.text().empty() || sample.ids().empty();
    terminal.out << PrintableLines(sample.prompt())
                 << (has_text ? PrintableLines(sample.text()) : " " + IdsText(sample.ids()))
                 << '\n';
  }
}

StatusOr<int> ShowNewestSamples(Invocation& invocation, const v1::RunStatus& run) {
  if (run.samples().empty()) {
    return NotFound(
        "run {} has no samples: the key samples.every of its run file asks for some, and --prompt "
        "asks for one now",
        run.run_id());
  }
  for (const v1::SampleRound& round : run.samples()) {
    if (invocation.json()) {
      invocation.PrintJsonLine(round);
    } else {
      PrintRound(invocation.terminal(), round);
    }
  }
  return kDone;
}

StatusOr<int> SampleNow(Invocation& invocation, const v1::RunStatus& run,
                        const SampleOptions& options) {
  LH_ASSIGN_OR_RETURN(const RunSpec spec,
                      ParseRunSpec(run.plan().assignment().run_yaml(), "run.yaml", {}));
  LH_ASSIGN_OR_RETURN(const Tokenized tokenized,
                      TokenizeFor(spec, options.tokenizer, {options.prompt}, options.chat));
  v1::SampleRequest request;
  request.set_run(run.run_id());
  v1::TakeSamples& wanted = *request.mutable_wanted();
  wanted.add_prompts()->mutable_ids()->Add(tokenized.ids.front().begin(),
                                           tokenized.ids.front().end());
  wanted.set_tokens(options.tokens);
  wanted.set_temperature(options.temperature);
  wanted.set_top_k(options.top_k);
  wanted.set_top_p(options.top_p);
  wanted.set_seed(options.seed);
  wanted.mutable_stop()->Add(tokenized.stop.begin(), tokenized.stop.end());
  LH_ASSIGN_OR_RETURN(v1::SampleReply reply,
                      invocation.Get(&v1::ControlService::Stub::SampleRun, request, kSampleLimit));
  if (reply.round().samples().empty()) return absl::InternalError("the run gave no text");
  v1::Sample& sample = *reply.mutable_round()->mutable_samples(0);
  if (!tokenized.pieces.empty()) {
    LH_ASSIGN_OR_RETURN(TokenPieces pieces,
                        TokenPieces::Parse(TokenPieces::Encode(tokenized.pieces)));
    const SampleText text(std::make_shared<const TokenPieces>(std::move(pieces)));
    const std::vector<uint32_t> ids(sample.ids().begin(), sample.ids().end());
    sample.set_text(text.Of(ids));
  }
  if (invocation.json()) {
    invocation.PrintJson(reply);
    return kDone;
  }
  const Terminal& terminal = invocation.terminal();
  terminal.out << PrintableLines(options.chat ? "" : options.prompt)
               << PrintableLines(sample.text()) << std::endl;
  terminal.err << fmt::format("by run {} after step {}", Printable(reply.run_id()),
                              reply.round().step())
               << std::endl;
  return kDone;
}

}  // namespace longhaul::cli
