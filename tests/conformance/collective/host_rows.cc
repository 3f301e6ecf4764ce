#include "tests/conformance/collective/group.h"
#include "transport/collective/host/factory.h"

namespace longhaul::collective {

const std::vector<Backend>& Backends() {
  static const auto* const backends = new std::vector<Backend>{
      {.name = "host",
       .memory = [](uint32_t) { return NewHostMemory(); },
       .create =
           [](std::shared_ptr<Member> member, Memory&, const RankSettings& settings,
              Deadline deadline) {
             return host::Create(std::move(member), {.call_limit = settings.call_limit}, deadline);
           }},
  };
  return *backends;
}

}  // namespace longhaul::collective
