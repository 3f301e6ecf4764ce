#include "worker/agent/obedience.h"

#include <fmt/core.h>

#include <algorithm>

namespace longhaul::worker {

Obedience ObedienceTo(const Obeyed& obeyed, const v1::WorkerCommand& command) {
  if (command.term() > obeyed.term) return Obedience::kObeyOnceStored;
  if (command.term() < obeyed.term) return Obedience::kRefuse;
  return command.tenure() == obeyed.tenure ? Obedience::kObey : Obedience::kRefuse;
}

std::string WhyRefused(const Obeyed& obeyed, const v1::WorkerCommand& command) {
  const std::string its = command.term() == 0 ? "no term" : fmt::format("term {}", command.term());
  if (command.term() == obeyed.term) {
    return fmt::format("has {}, as another coordinator that this worker obeys{}", its,
                       obeyed.address.empty() ? "" : ": " + obeyed.address);
  }
  return fmt::format("has {}, but one of term {} has taken over from it", its, obeyed.term);
}

Obeyed ObeyedAfter(const Obeyed& obeyed, const v1::WorkerCommand& command,
                   const std::string& address) {
  const bool same = command.term() == obeyed.term;
  return {.term = command.term(),
          .tenure = command.tenure(),
          .address = address,
          .change = same ? std::max(obeyed.change, command.change()) : command.change()};
}

void SayObeyed(const Obeyed& obeyed, v1::Hello* hello) {
  hello->set_term(obeyed.term);
  hello->set_tenure(obeyed.tenure);
  hello->set_leader_address(obeyed.address);
  hello->set_change(obeyed.change);
}

}  // namespace longhaul::worker
