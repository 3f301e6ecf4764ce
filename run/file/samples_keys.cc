// Keys of the section "samples", and what their values need of each other.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "run/file/custom_values.h"
#include "run/file/keys.h"
#include "run/file/run_spec_checks.h"
#include "run/file/values.h"

namespace longhaul::config {
namespace {

constexpr uint32_t kMostIds = 1u << 20;  // of a prompt

void ReadPrompt(Reader& reader, const YAML::Node& node, const std::string& path,
                const std::string& expected, std::vector<std::string>* prompts) {
  // A prompt may have several lines, unlike other texts of a run file.
  const auto is_control = [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
  };
  if (!node.IsScalar() || node.Scalar().empty() || node.Scalar().size() > kMostPromptBytes ||
      prompts->size() == kMostSamplePrompts || std::ranges::any_of(node.Scalar(), is_control)) {
    reader.FailExpected(node, path, expected);
  } else {
    prompts->push_back(node.Scalar());
  }
}

std::string QuotePrompt(const std::string& prompt) {
  return absl::StrReplaceAll(Quote(prompt), {{"\n", "\\n"}, {"\t", "\\t"}});
}

Value Prompts() {
  return Bound(
      LH_AT(samples.prompts),
      [](std::string name, std::vector<std::string>* target) {
        return OneOrList(
            std::move(name),
            fmt::format("1 to {} texts of 1 to {} bytes, such as [\"Once upon a time\"]",
                        kMostSamplePrompts, kMostPromptBytes),
            target, ReadPrompt);
      },
      [](const std::vector<std::string>& prompts) {
        std::vector<std::string> quoted;
        for (const std::string& prompt : prompts) quoted.push_back(QuotePrompt(prompt));
        return fmt::format("[{}]", fmt::join(quoted, ", "));
      },
      R"("type": ["string", "array"], "items": {"type": "string"})");
}

// Appends the ids of a list; false: it is no list of ids.
bool ReadIds(const YAML::Node& node, size_t most, std::vector<uint32_t>* ids) {
  if (!node.IsSequence() || node.size() > most) return false;
  for (const auto& one : node) {
    uint32_t id = 0;
    if (!one.IsScalar() || !YAML::convert<uint32_t>::decode(one, id)) return false;
    ids->push_back(id);
  }
  return true;
}

std::string IdsText(const std::vector<uint32_t>& ids) {
  return fmt::format("[{}]", fmt::join(ids, ", "));
}

Value Ids() {
  return Bound(
      LH_AT(samples.ids),
      [](std::string name, std::vector<std::vector<uint32_t>>* target) {
        const auto read = [=](Reader& reader, const YAML::Node& node, const std::string& path,
                              const std::string& expected) {
          target->clear();
          bool right = node.IsSequence() && node.size() <= kMostSamplePrompts;
          if (right) {
            for (const auto& prompt : node) {
              right = right && ReadIds(prompt, kMostIds, &target->emplace_back());
            }
          }
          if (!right) reader.FailExpected(node, path, expected);
        };
        return Custom(std::move(name),
                      fmt::format("a list of at most {} lists of token ids, such as [[12, 7]]",
                                  kMostSamplePrompts),
                      read);
      },
      [](const std::vector<std::vector<uint32_t>>& prompts) {
        std::vector<std::string> texts;
        for (const std::vector<uint32_t>& ids : prompts) texts.push_back(IdsText(ids));
        return fmt::format("[{}]", fmt::join(texts, ", "));
      },
      R"("type": "array", "items": {"type": "array", "items": {"type": "integer"}})");
}

Value Stop() {
  return Bound(
      LH_AT(samples.stop),
      [](std::string name, std::vector<uint32_t>* target) {
        const auto read = [=](Reader& reader, const YAML::Node& node, const std::string& path,
                              const std::string& expected) {
          target->clear();
          if (!ReadIds(node, kMostSampleStops, target)) reader.FailExpected(node, path, expected);
        };
        return Custom(std::move(name),
                      fmt::format("a list of at most {} token ids", kMostSampleStops), read);
      },
      IdsText, R"("type": "array", "items": {"type": "integer"})");
}

}  // namespace

std::vector<Key> SamplesKeys() {
  return {
      {"samples.every",
       Whole(LH_AT(samples.every), 0, kMostSteps),
       kNothing,
       "Steps between rounds in which the run's pipeline continues the prompts, one of which "
       "follows the last step; 0: none",
       {.unit = "steps"}},
      {"samples.prompts",
       Prompts(),
       kNothing,
       "Texts that the model continues; `longhaul watch` and the dashboard show how",
       {.applies = [](const RunSpec& spec) { return !spec.samples.prompts.empty(); }}},
      {"samples.tokens",
       Whole(LH_AT(samples.tokens), 1, kMostSampleTokens),
       kNothing,
       "Most new tokens of a text",
       {.unit = "tokens"}},
      {"samples.temperature", Real(LH_AT(samples.temperature), {.least = 0, .most = 100}), kNothing,
       "Sampling temperature; 0: always the likeliest token"},
      {"samples.top_p", Real(LH_AT(samples.top_p), {.least = 0, .most = 1, .above_least = true}),
       kNothing, "Tokens are drawn among the likeliest whose probabilities add up to this share"},
      {"samples.seed", Whole(LH_AT(samples.seed), 0, UINT64_MAX), kNothing,
       "Seed of the random numbers, the same in every round"},
      {"samples.ids",
       Ids(),
       kNothing,
       "Token ids of the prompts; the CLI fills them in by the tokenizer of the model or data sets",
       {.applies = [](const RunSpec& spec) { return !spec.samples.ids.empty(); }}},
      {"samples.stop",
       Stop(),
       kNothing,
       "Token ids that end a text; the CLI fills them in",
       {.applies = [](const RunSpec& spec) { return !spec.samples.stop.empty(); }}},
      {"samples.pieces",
       Text(LH_AT(samples.pieces_sha256), "what the CLI fills in", CheckSha256, kPlain),
       kNothing,
       "Content address of the table by which token ids become text; the CLI fills it in",
       {.applies = [](const RunSpec& spec) { return !spec.samples.pieces_sha256.empty(); }}},
  };
}

void CheckSamples(const RunSpec& spec, Reader& reader) {
  const SamplesSpec& samples = spec.samples;
  const auto fail = [&](const char* key, const std::string& what) {
    reader.Fail(reader.PlaceOf(key), fmt::format("{}: {}", key, what));
  };
  if (!reader.Sound({"samples.every", "samples.prompts", "samples.tokens", "samples.ids"})) return;
  if (samples.every > 0 && samples.prompts.empty() && samples.ids.empty()) {
    fail("samples.every", "expected samples.prompts beside it, the texts to be continued");
  }
  if (samples.every == 0) return;
  if (spec.replay) {
    fail("samples.every", "a replay computes nothing, so it has no texts; leave `samples` out");
  }
  if (!samples.prompts.empty() && !samples.ids.empty() &&
      samples.prompts.size() != samples.ids.size()) {
    fail("samples.ids", fmt::format("expected the ids of {} prompts, got those of {}",
                                    samples.prompts.size(), samples.ids.size()));
  }
  if (!reader.Sound({"model.context"})) return;
  const uint32_t context = spec.model.context;
  const auto check = [&](const char* key, size_t tokens) {
    if (tokens > 0 && tokens + samples.tokens <= context) return;
    fail(key, fmt::format("expected prompts of 1 to {} tokens, which with samples.tokens ({}) fill "
                          "model.context ({}), got one of {}",
                          context > samples.tokens ? context - samples.tokens : 0, samples.tokens,
                          context, tokens));
  };
  if (!samples.ids.empty()) {
    for (const std::vector<uint32_t>& ids : samples.ids) check("samples.ids", ids.size());
  } else if (spec.data.sets.empty()) {  // a token of each byte
    for (const std::string& prompt : samples.prompts) check("samples.prompts", prompt.size());
  }
}

}  // namespace longhaul::config
