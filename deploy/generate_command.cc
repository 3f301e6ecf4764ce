#include "deploy/generate_command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "cli/export_command.h"
#include "cli/samples.h"
#include "deploy/data/data_command.h"

namespace longhaul::cli {
namespace {

namespace fs = std::filesystem;

struct GenerateOptions {
  std::string from;  // a folder, or a run
  uint64_t step = 0;
  std::optional<std::string> prompt;
  std::string tokenizer, device = "auto";
  bool chat = false;
  uint32_t tokens = 64, top_k = 0, threads = 1;
  double temperature = 0.8, top_p = 0.95;
  uint64_t seed = 1;
};

StatusOr<int> NoPrompt(const Invocation& invocation) {
  invocation.terminal().err << "longhaul generate: --prompt is required" << std::endl;
  return kWrongUsage;
}

StatusOr<int> Generate(Invocation& invocation, const GenerateOptions& options) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::string folder = options.from;
  const bool is_run = !fs::exists(fs::path(folder) / "config.json", error) &&
                      !fs::exists(fs::path(folder) / "longhaul.json", error);
  if (!options.prompt && (!is_run || options.step > 0)) return NoPrompt(invocation);
  if (is_run && options.step == 0) {
    LH_ASSIGN_OR_RETURN(Client* const client, invocation.Connect());
    LH_ASSIGN_OR_RETURN(const v1::RunStatus run, client->GetRun(options.from));
    if (!options.prompt) return ShowNewestSamples(invocation, run);
    if (run.state() == "running") {
      return SampleNow(invocation, run,
                       {.prompt = *options.prompt,
                        .tokenizer = options.tokenizer,
                        .chat = options.chat,
                        .tokens = options.tokens,
                        .top_k = options.top_k,
                        .temperature = options.temperature,
                        .top_p = options.top_p,
                        .seed = options.seed});
    }
  }
  if (is_run) {
    folder = (fs::temp_directory_path() / ("longhaul-generate-" + RandomUuid())).string();
    LH_RETURN_IF_ERROR(ExportRun(invocation, {.run = options.from,
                                              .step = options.step,
                                              .out = folder,
                                              .type = "auto",
                                              .format = "auto",
                                              .merged = true})
                           .status());
  }
  std::vector<std::string> arguments = {"generate", folder};
  const auto add = [&](const std::string& name, const auto& value) {
    // In one word: a prompt may begin with a dash.
    arguments.push_back(fmt::format("--{}={}", name, value));
  };
  add("program", (program / "longhaul-generate").string());
  add("prompt", *options.prompt);
  add("tokens", options.tokens);
  add("temperature", options.temperature);
  add("top-k", options.top_k);
  add("top-p", options.top_p);
  add("seed", options.seed);
  add("threads", options.threads);
  add("device", options.device);
  if (options.chat) arguments.push_back("--chat");
  if (is_run) arguments.push_back("--temporary");
  Status status = RunPythonProgram(DataPart(), arguments);  // returns only if it fails
  if (is_run) fs::remove_all(folder, error);
  return status;
}

}  // namespace

void AddGenerateCommand(Program& program) {
  const auto [command, options] = program.AddCommand(
      "generate",
      "Text that follows a prompt, by a run that trains, by a run's newest checkpoint or by a "
      "model's folder",
      Generate);
  command
      ->add_option("FROM", options->from,
                   "A folder with config.json or longhaul.json, safetensors and tokenizer.json; "
                   "else a run's id or "
                   "name: while it trains, its pipeline writes the text between two steps, else "
                   "its checkpoint comes to this machine")
      ->required();
  command
      ->add_option("--prompt", options->prompt,
                   "How the text begins; of a run may be left out: the newest texts by its key "
                   "samples.every")
      ->type_name("TEXT");
  command->add_flag("--chat", options->chat,
                    "The prompt is what a user says, in the model's chat template");
  command
      ->add_option("--step", options->step,
                   "Step of the checkpoint to take, where FROM is a run, even one that trains; "
                   "default: the newest")
      ->type_name("STEP");
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "Folder with tokenizer.json, for a run that trains; default: that of its data "
                   "sets or of the model that it began with")
      ->type_name("DIR");
  command->add_option("--tokens", options->tokens, "Maximum number of new tokens")
      ->capture_default_str();
  command
      ->add_option("--temperature", options->temperature,
                   "Sampling temperature; 0: always the likeliest token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command
      ->add_option("--top-k", options->top_k,
                   "Choose among this many likeliest tokens; 0: among all")
      ->capture_default_str();
  command
      ->add_option("--top-p", options->top_p,
                   "Choose among the likeliest tokens whose probabilities add up to this share")
      ->check(CLI::Range(1e-6, 1.0))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of the random numbers")->capture_default_str();
  command
      ->add_option("--device", options->device,
                   "What computes: cpu, cuda, cuda:N, or auto, a GPU where there is one")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Number of threads that compute")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
}

}  // namespace longhaul::cli
