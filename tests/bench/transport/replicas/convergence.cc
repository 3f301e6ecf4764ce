// How well a small language model learns when its replicas exchange in each form, beside `none`.
// The text is drawn from a Markov chain of order two, so there is something to learn and nothing to
// download. One process, no links.
//
//   longhaul-replicas-convergence --steps 600 --seeds 1,2,3 > rows.csv
//
// The model: kContext tokens, an embedding, one hidden layer with tanh, an output; AdamW at the
// owners of shards. Losses are means over validation batches that no replica trains with.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "queued_replicas.h"
#include "transport/replicas/outer_step.h"

namespace longhaul::replicas {
namespace {

constexpr uint32_t kVocabulary = 128, kChannels = 48, kContext = 3, kHidden = 192;
constexpr uint32_t kInputs = kContext * kChannels;

struct Flags {
  uint64_t steps = 600;
  uint32_t replicas = 2, batch = 64;
  double lr = 3e-3;
  std::vector<uint64_t> seeds = {1, 2, 3};
  std::vector<std::string> forms = {"none/fp32",
                                    "bf16/bf16",
                                    "sdp4bit/difference4",
                                    "sdp4bit:feedback=on/difference4",
                                    "tagc:least=4096/fp32",
                                    "tagc:least=4096/difference4",
                                    "local-sgd:steps=20/fp32",
                                    "local-sgd:steps=20/difference4",
                                    "local-sgd:steps=20,feedback=off/difference4",
                                    "local-sgd:steps=20,delay=0.25/difference4"};
};

std::vector<ReplicatedParameter> Parameters() {
  return {{"embedding", uint64_t{kVocabulary} * kChannels, true},
          {"hidden", uint64_t{kInputs} * kHidden, true},
          {"hidden.bias", kHidden},
          {"output", uint64_t{kHidden} * kVocabulary, true},
          {"output.bias", kVocabulary}};
}

using Tensors = std::vector<std::vector<float>>;

class Text {
 public:
  explicit Text(uint64_t seed) : random_(seed) {}
  // kContext tokens and the one that follows.
  std::vector<uint32_t> Draw() {
    std::vector<uint32_t> tokens = {Below(kVocabulary), Below(kVocabulary)};
    while (tokens.size() < kContext + 1) {
      const uint32_t a = tokens[tokens.size() - 2], b = tokens.back();
      // Most probably one of four that the last token names, shifted by the kind of the one before;
      // sometimes any.
      const uint32_t choice = std::min(Below(4), Below(4));
      const uint32_t named = (b * 11 + a % 4 * 29 + choice * 3) % kVocabulary;
      tokens.push_back(Below(10) == 0 ? Below(kVocabulary) : named);
    }
    return tokens;
  }

 private:
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  std::mt19937_64 random_;
};

// Adds to `gradients`, where given, the gradient of the mean loss of a batch; returns that loss.
double Pass(const Tensors& p, const std::vector<std::vector<uint32_t>>& batch, Tensors* gradients) {
  double loss = 0;
  std::vector<float> hidden(kHidden), logits(kVocabulary), d_hidden(kHidden), x(kInputs),
      d_x(kInputs);
  const float share = 1.0f / static_cast<float>(batch.size());
  for (const std::vector<uint32_t>& tokens : batch) {
    for (uint32_t c = 0; c < kContext; ++c) {
      std::copy_n(&p[0][tokens[c] * kChannels], kChannels, &x[c * kChannels]);
    }
    hidden = p[2];
    for (uint32_t i = 0; i < kInputs; ++i) {
      for (uint32_t h = 0; h < kHidden; ++h) hidden[h] += x[i] * p[1][i * kHidden + h];
    }
    for (float& h : hidden) h = std::tanh(h);
    logits = p[4];
    for (uint32_t h = 0; h < kHidden; ++h) {
      for (uint32_t v = 0; v < kVocabulary; ++v) logits[v] += hidden[h] * p[3][h * kVocabulary + v];
    }
    const float largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double{logit} - largest);
    loss -= logits[tokens.back()] - largest - std::log(sum);
    if (gradients == nullptr) continue;
    for (uint32_t v = 0; v < kVocabulary; ++v) {
      logits[v] = static_cast<float>(std::exp(double{logits[v]} - largest) / sum) * share;
    }
    logits[tokens.back()] -= share;
    Tensors& g = *gradients;
    for (uint32_t v = 0; v < kVocabulary; ++v) g[4][v] += logits[v];
    for (uint32_t h = 0; h < kHidden; ++h) {
      float d = 0;
      for (uint32_t v = 0; v < kVocabulary; ++v) {
        g[3][h * kVocabulary + v] += hidden[h] * logits[v];
        d += p[3][h * kVocabulary + v] * logits[v];
      }
      d_hidden[h] = d * (1 - hidden[h] * hidden[h]);
      g[2][h] += d_hidden[h];
    }
    for (uint32_t i = 0; i < kInputs; ++i) {
      float d = 0;
      for (uint32_t h = 0; h < kHidden; ++h) {
        g[1][i * kHidden + h] += x[i] * d_hidden[h];
        d += p[1][i * kHidden + h] * d_hidden[h];
      }
      d_x[i] = d;
    }
    for (uint32_t c = 0; c < kContext; ++c) {
      for (uint32_t k = 0; k < kChannels; ++k) {
        g[0][tokens[c] * kChannels + k] += d_x[c * kChannels + k];
      }
    }
  }
  return loss / static_cast<double>(batch.size());
}

// Adam over a fixed set of elements.
class Adam {
 public:
  void Step(double lr, std::span<const float> gradient, std::span<float> parameter) {
    constexpr double kBeta1 = 0.9, kBeta2 = 0.95, kEpsilon = 1e-8, kDecay = 0.01;
    m_.resize(gradient.size());
    v_.resize(gradient.size());
    ++steps_;
    const double correct1 = 1 - std::pow(kBeta1, steps_), correct2 = 1 - std::pow(kBeta2, steps_);
    for (size_t k = 0; k < gradient.size(); ++k) {
      m_[k] = kBeta1 * m_[k] + (1 - kBeta1) * gradient[k];
      v_[k] = kBeta2 * v_[k] + (1 - kBeta2) * gradient[k] * gradient[k];
      const double step = m_[k] / correct1 / (std::sqrt(v_[k] / correct2) + kEpsilon);
      parameter[k] = static_cast<float>(parameter[k] - lr * (step + kDecay * parameter[k]));
    }
  }

 private:
  std::vector<double> m_, v_;
  int steps_ = 0;
};

class Training {
 public:
  Training(const Flags& flags, const std::string& form, uint64_t seed)
      : flags_(flags), parameters_(Parameters()), validation_(1'000'003 + seed) {
    const size_t slash = form.find('/');
    options_ = {.replicas = flags.replicas,
                .gradients = Must(ParseGradients(form.substr(0, slash))),
                .parameters = Must(ParseParameters(form.substr(slash + 1)))};
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    Tensors begin;
    const float scales[] = {0.5f, 1 / std::sqrt(float{kInputs}), 0, 1 / std::sqrt(float{kHidden}),
                            0};
    for (size_t k = 0; k < parameters_.size(); ++k) {
      for (float& value : begin.emplace_back(parameters_[k].elements)) {
        value = scales[k] * normal(random);
      }
    }
    const std::vector<std::span<const float>> spans(begin.begin(), begin.end());
    replicas_.emplace(parameters_, options_, spans, seed);
    for (uint32_t r = 0; r < flags.replicas; ++r) {
      values_.push_back(begin);
      texts_.emplace_back(seed * 1000 + r);
      if (IsLocal()) outers_.emplace_back(options_.gradients.local, spans);
    }
    adams_.resize(flags.replicas);
  }

  // Validation loss at the end, and bytes that one replica sent in all.
  std::pair<double, uint64_t> Run() {
    for (uint64_t step = 1; step <= flags_.steps; ++step) {
      std::vector<Tensors> gradients(flags_.replicas);
      for (uint32_t r = 0; r < flags_.replicas; ++r) {
        for (const auto& parameter : parameters_) gradients[r].emplace_back(parameter.elements);
        std::vector<std::vector<uint32_t>> batch;
        for (uint32_t k = 0; k < flags_.batch; ++k) batch.push_back(texts_[r].Draw());
        Pass(values_[r], batch, &gradients[r]);
      }
      // To a tenth at the end, linearly.
      const double lr =
          flags_.lr * (1 - 0.9 * static_cast<double>(step) / static_cast<double>(flags_.steps));
      IsLocal() ? LocalStep(step, lr, gradients) : SharedStep(step, lr, gradients);
    }
    std::vector<std::vector<uint32_t>> batch;
    constexpr int kValidation = 4000;
    for (int k = 0; k < kValidation; ++k) batch.push_back(validation_.Draw());
    return {Pass(values_[0], batch, nullptr), replicas_->reducer(0).sent().total()};
  }

 private:
  bool IsLocal() const { return options_.gradients.form == GradientForm::kLocalSgd; }

  void SharedStep(uint64_t step, double lr, const std::vector<Tensors>& gradients) {
    replicas_->Step(
        step,
        [&](uint32_t r) {
          std::vector<ParameterMemory> memory;
          for (size_t k = 0; k < parameters_.size(); ++k) {
            memory.push_back({gradients[r][k], values_[r][k]});
          }
          return memory;
        },
        [&](uint32_t r, uint32_t /*bucket*/, std::span<const OwnPiece> own) {
          adams_[r].resize(own.size());
          for (size_t k = 0; k < own.size(); ++k) {
            adams_[r][k].Step(lr, own[k].gradient, own[k].master);
          }
        });
  }

  void LocalStep(uint64_t step, double lr, const std::vector<Tensors>& gradients) {
    for (uint32_t r = 0; r < flags_.replicas; ++r) {
      adams_[r].resize(parameters_.size());
      for (size_t k = 0; k < parameters_.size(); ++k) {
        adams_[r][k].Step(lr, gradients[r][k], values_[r][k]);
      }
    }
    if (outers_[0].IsDue(step)) {
      for (uint32_t r = 0; r < flags_.replicas; ++r) {
        outers_[r].TakeDifferences(
            std::vector<std::span<const float>>(values_[r].begin(), values_[r].end()));
      }
      replicas_->Step(
          step / options_.gradients.local.steps, [&](uint32_t r) { return outers_[r].memory(); },
          [&](uint32_t r, uint32_t bucket, std::span<const OwnPiece> own) {
            outers_[r].StepMasters(bucket, own);
          });
    }
    if (outers_[0].MergeIsDue(step)) {
      for (uint32_t r = 0; r < flags_.replicas; ++r) {
        outers_[r].Merge(std::vector<std::span<float>>(values_[r].begin(), values_[r].end()));
      }
    }
  }

  const Flags& flags_;
  const std::vector<ReplicatedParameter> parameters_;
  LayoutOptions options_;
  Text validation_;
  std::optional<QueuedReplicas> replicas_;
  std::vector<Tensors> values_;
  std::vector<Text> texts_;
  std::vector<OuterStep> outers_;
  std::vector<std::vector<Adam>> adams_;  // by replica, by piece or parameter
};

void Print(const Flags& flags) {
  fmt::print("form,seed,steps,loss,bytes_per_step\n");
  std::vector<double> means;
  for (const std::string& form : flags.forms) {
    double sum = 0;
    for (const uint64_t seed : flags.seeds) {
      const auto [loss, bytes] = Training(flags, form, seed).Run();
      fmt::print("\"{}\",{},{},{:.5f},{}\n", form, seed, flags.steps, loss, bytes / flags.steps);
      std::fflush(stdout);
      sum += loss;
    }
    means.push_back(sum / static_cast<double>(flags.seeds.size()));
  }
  fmt::print("\nform,mean_loss,against_first_percent\n");
  for (size_t k = 0; k < means.size(); ++k) {
    fmt::print("\"{}\",{:.5f},{:+.2f}\n", flags.forms[k], means[k],
               100 * (means[k] / means[0] - 1));
  }
}

}  // namespace
}  // namespace longhaul::replicas

int main(int argc, char** argv) {
  longhaul::replicas::Flags flags;
  CLI::App app("Losses of a small model whose replicas exchange in several forms.");
  app.add_option("--steps", flags.steps)->check(CLI::Range(1, 1000000));
  app.add_option("--replicas", flags.replicas)->check(CLI::Range(1, 16));
  app.add_option("--batch", flags.batch, "of each replica")->check(CLI::Range(1, 4096));
  app.add_option("--lr", flags.lr);
  app.add_option("--seeds", flags.seeds)->delimiter(',');
  app.add_option("--form", flags.forms,
                 "GRADIENTS/PARAMETERS; again for another; the first one is compared with");
  CLI11_PARSE(app, argc, argv);
  longhaul::replicas::Print(flags);
}
