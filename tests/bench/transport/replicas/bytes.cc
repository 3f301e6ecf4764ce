// What a step of replicas of a whole model sends, counted from the messages, and what the CPU needs
// for it. Gradients are made: heavy tails, and rows of the embedding that a batch does not have are
// zeros.
//
//   longhaul-replicas-bytes --preset gpt2 --replicas 2
#include <absl/time/time.h>
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "base/clock.h"
#include "codec/thread_pool.h"
#include "queued_replicas.h"
#include "run/model/family.h"
#include "transport/replicas/parameters.h"

namespace longhaul::replicas {
namespace {

struct Flags {
  std::string preset = "gpt2";
  uint32_t replicas = 2, layers = 0, steps = 2, threads = 1;
  double local_steps = 20;
  bool untied = false;
};

std::vector<model::PlacedParameter> ModelOf(const Flags& flags) {
  for (const model::Preset& preset : model::Presets()) {
    if (preset.name != flags.preset) continue;
    ModelSpec spec = preset.model;
    spec.tied = !flags.untied;
    if (flags.layers > 0) spec.layers = flags.layers;
    return model::ParametersOf(spec, *spec.vocabulary,
                               model::Part{.layers = spec.layers, .embedding = true, .head = true});
  }
  fmt::print(stderr, "no preset '{}'\n", flags.preset);
  std::exit(2);
}

// Cubes of sums of four uniform numbers: near enough to normal ones, and fast.
void FillGradients(uint64_t seed, std::span<float> out, uint64_t row, bool rows_are_tokens) {
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  bool used = true;
  for (uint64_t k = 0; k < out.size(); ++k) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    constexpr uint64_t kOneIn = 16;
    if (rows_are_tokens && k % row == 0) used = state % kOneIn == 0;
    const float sum = static_cast<float>((state & 0xffff) + (state >> 16 & 0xffff) +
                                         (state >> 32 & 0xffff) + (state >> 48)) -
                      131070.0f;
    const float x = sum * 0x1p-16f;
    out[k] = used ? x * x * x : 0;
  }
}

struct Row {
  ByteCounts bytes;
  SparseCounts sparse;
  double seconds = 0;
};

Row Measure(const Flags& flags, codec::Parallel* pool,
            std::span<const model::PlacedParameter> model, const std::string& gradients_form,
            const std::string& parameters_form) {
  const auto parameters = ReplicatedParameters(model, /*whole_matrices=*/false);
  std::vector<std::vector<float>> values, gradients;
  for (const ReplicatedParameter& parameter : parameters) {
    values.emplace_back(parameter.elements);
    gradients.emplace_back(parameter.elements);
  }
  const std::vector<std::span<const float>> begin(values.begin(), values.end());
  QueuedReplicas replicas(parameters,
                          {.replicas = flags.replicas,
                           .gradients = Must(ParseGradients(gradients_form)),
                           .parameters = Must(ParseParameters(parameters_form))},
                          begin, 1, pool);
  std::vector<std::vector<std::vector<float>>> of_replicas(flags.replicas, gradients);
  std::vector<std::vector<std::vector<float>>> values_of_replicas(flags.replicas, values);
  Row row;
  ByteCounts before;
  for (uint64_t step = 1; step <= flags.steps; ++step) {
    for (uint32_t r = 0; r < flags.replicas; ++r) {
      for (size_t k = 0; k < parameters.size(); ++k) {
        const auto& shape = model[k].parameter.shape;
        FillGradients(step * 1000 + r * 100 + k, of_replicas[r][k], std::max(shape.columns, 1u),
                      model[k].parameter.role == model::Role::kEmbedding && shape.is_matrix());
      }
    }
    before = replicas.reducer(0).sent();
    const MonoTime began = Now();
    replicas.Step(
        step,
        [&](uint32_t r) {
          std::vector<ParameterMemory> memory;
          for (size_t k = 0; k < parameters.size(); ++k) {
            memory.push_back({of_replicas[r][k], values_of_replicas[r][k]});
          }
          return memory;
        },
        [](uint32_t, uint32_t, std::span<const OwnPiece> own) {
          for (const OwnPiece& piece : own) {
            for (size_t k = 0; k < piece.master.size(); ++k) {
              piece.master[k] -= 1e-3f * piece.gradient[k];
            }
          }
        });
    row.seconds = absl::ToDoubleSeconds(Now() - began) / flags.replicas;
  }
  const ByteCounts& after = replicas.reducer(0).sent();
  row.bytes = {after.gradients - before.gradients, after.index - before.index,
               after.sketch - before.sketch, after.asked_for - before.asked_for,
               after.parameters - before.parameters};
  row.sparse = replicas.reducer(0).sparse_counts();
  return row;
}

void Print(const Flags& flags) {
  const auto model = ModelOf(flags);
  uint64_t elements = 0;
  for (const ReplicatedParameter& parameter : ReplicatedParameters(model, false)) {
    elements += parameter.elements;
  }
  fmt::print("{}, {} parameters, {} replicas; bytes that one replica sends in a step\n",
             flags.preset, elements, flags.replicas);
  fmt::print(
      "gradients,parameters,gradients_bytes,index_bytes,sketch_bytes,asked_for_bytes,parameters_"
      "bytes,total_bytes,fewer_than_bf16,asked_for_share,positions_per_cell,cpu_seconds\n");
  const std::pair<const char*, const char*> forms[] = {
      {"bf16", "bf16"},        {"none", "fp32"}, {"sdp4bit", "difference4"},
      {"tagc", "difference4"}, {"tagc", "bf16"}, {"local-sgd", "difference4"}};
  double reference = 0;
  codec::ThreadPool pool(flags.threads);
  for (const auto& [gradients, parameters] : forms) {
    const Row row = Measure(flags, &pool, model, gradients, parameters);
    const bool local = std::string_view(gradients) == "local-sgd";
    const double total = static_cast<double>(row.bytes.total()) / (local ? flags.local_steps : 1.0);
    if (reference == 0) reference = total;
    const auto share = [](uint64_t part, uint64_t whole) {
      return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
    };
    fmt::print("{}{},{},{},{},{},{},{},{:.0f},{:.3f},{:.6f},{:.3f},{:.2f}\n", gradients,
               local ? fmt::format(" / {} steps", flags.local_steps) : "", parameters,
               row.bytes.gradients, row.bytes.index, row.bytes.sketch, row.bytes.asked_for,
               row.bytes.parameters, total, reference / total,
               share(row.sparse.asked_for, row.sparse.kept_by_any),
               share(row.sparse.kept_by_any, row.sparse.cells), row.seconds);
  }
}

}  // namespace
}  // namespace longhaul::replicas

int main(int argc, char** argv) {
  longhaul::replicas::Flags flags;
  CLI::App app("Bytes that replicas of a model send each other.");
  app.add_option("--preset", flags.preset);
  app.add_option("--replicas", flags.replicas)->check(CLI::Range(2, 16));
  app.add_option("--layers", flags.layers, "0: the preset's");
  app.add_option("--steps", flags.steps, "the last one is shown")->check(CLI::Range(1, 1000));
  app.add_option("--threads", flags.threads, "that code")->check(CLI::Range(1, 1024));
  app.add_option("--local-steps", flags.local_steps)->check(CLI::Range(1, 100000));
  app.add_flag("--untied", flags.untied, "embedding and head are two matrices");
  CLI11_PARSE(app, argc, argv);
  longhaul::replicas::Print(flags);
}
