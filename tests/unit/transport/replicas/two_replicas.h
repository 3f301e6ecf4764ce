// Two or three reducers on one thread, whose messages a test holds in its hands.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/replicas/reducer.h"

namespace longhaul::replicas {

struct Sent {
  uint32_t to = 0;
  MessageKind kind{};
  std::vector<std::byte> bytes;
};
struct Held final : Outbox {
  std::vector<Sent> sent;
  Status Send(uint32_t to, MessageKind kind, std::vector<std::byte> message) override {
    sent.push_back({to, kind, std::move(message)});
    return absl::OkStatus();
  }
  std::vector<Sent> TakeAll() { return std::exchange(sent, {}); }
  Sent TakeOne(MessageKind kind) {
    for (size_t k = 0; k < sent.size(); ++k) {
      if (sent[k].kind != kind) continue;
      Sent one = std::move(sent[k]);
      sent.erase(sent.begin() + static_cast<ptrdiff_t>(k));
      return one;
    }
    ADD_FAILURE() << "no " << ToString(kind) << " was sent";
    return {};
  }
};

// One bucket: a matrix that may be sparse and a vector.
class HandHeld {
 public:
  static constexpr uint64_t kMatrix = 4 * kUnit, kVector = 100;
  HandHeld(uint32_t replica, std::string_view gradients_form, std::string_view parameters_form,
           uint32_t replicas = 2, bool may_skip = false)
      : gradients_{std::vector<float>(kMatrix), std::vector<float>(kVector)}, values_(gradients_) {
    // Numbers without arithmetic of fp32 in them: golden files are of these.
    uint32_t state = 12345 + replica;
    for (auto& tensor : gradients_) {
      for (float& value : tensor) {
        state = state * 1664525 + 1013904223;
        const int number = static_cast<int>(state >> 16 & 0xfff) - 2048;
        value = static_cast<float>(number * (state >> 28 == 0 ? 16 : 1)) * 0x1p-12f;
      }
    }
    auto layout = Layout::Make({{"w", kMatrix, true}, {"b", kVector}},
                               {.replicas = replicas,
                                .gradients = ParseGradients(gradients_form).value(),
                                .parameters = ParseParameters(parameters_form).value()});
    EXPECT_TRUE(layout.ok()) << layout.status();
    auto made = Reducer::Create(*std::move(layout),
                                {.replica = replica, .seed = 7, .may_skip = may_skip}, &outbox);
    EXPECT_TRUE(made.ok()) << made.status();
    reducer = *std::move(made);
  }

  Status Begin(uint64_t step) {
    return reducer->Begin(step, {{gradients_[0], values_[0]}, {gradients_[1], values_[1]}});
  }
  // Begins the step and gives the gradients of its bucket.
  Status Give(uint64_t step) {
    const Status status = Begin(step);
    return status.ok() ? reducer->GiveGradients(0) : status;
  }
  // Steps the masters by the mean, and sends them.
  Status Publish() {
    for (const OwnPiece& own : reducer->Own(0)) {
      for (size_t k = 0; k < own.master.size(); ++k) own.master[k] -= own.gradient[k];
    }
    return reducer->GiveParameters(0);
  }

  std::vector<std::vector<float>>& values() { return values_; }
  // To change between steps.
  std::vector<std::vector<float>>& gradients() { return gradients_; }

  Held outbox;
  std::unique_ptr<Reducer> reducer;

 private:
  std::vector<std::vector<float>> gradients_, values_;
};

// Carries all messages until none is left.
inline Status Carry(HandHeld* a, HandHeld* b) {
  for (bool any = true; any;) {
    any = false;
    for (auto [from, number, to] : {std::tuple{a, 0u, b}, std::tuple{b, 1u, a}}) {
      for (Sent& sent : from->outbox.TakeAll()) {
        any = true;
        const Status status = to->reducer->Take(number, std::move(sent.bytes));
        if (!status.ok()) return status;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace longhaul::replicas
