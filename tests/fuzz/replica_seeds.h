// What replica 0 sends replica 1 in a step, as replicas_message_fuzz reads it.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/replicas/fuzz/fuzzed_stage.h"

namespace longhaul::replicas {

inline std::string ReplicaSeed(uint8_t forms) {
  struct Queue final : Outbox {
    std::vector<std::vector<std::byte>> messages;
    Status Send(uint32_t, MessageKind, std::vector<std::byte> message) override {
      messages.push_back(std::move(message));
      return absl::OkStatus();
    }
  };
  Queue out[2];
  std::vector<std::unique_ptr<FuzzedStage>> stages;
  for (uint32_t replica = 0; replica < 2; ++replica) {
    stages.push_back(std::make_unique<FuzzedStage>(forms, replica, &out[replica]));
  }
  std::string seed(1, static_cast<char>(forms));
  for (bool any = true; any;) {
    any = false;
    for (uint32_t from = 0; from < 2; ++from) {
      for (std::vector<std::byte>& message : std::exchange(out[from].messages, {})) {
        any = true;
        if (from == 0) {
          seed += static_cast<char>(message.size() & 0xff);
          seed += static_cast<char>(message.size() >> 8);
          seed.append(reinterpret_cast<const char*>(message.data()), message.size());
        }
        if (!stages[1 - from]->Take(from, std::move(message)).ok()) std::abort();
      }
    }
  }
  return seed;
}

}  // namespace longhaul::replicas
