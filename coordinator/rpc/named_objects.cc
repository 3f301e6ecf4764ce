#include "coordinator/rpc/named_objects.h"

#include <string>

namespace longhaul::coordinator {

Status NamedObjects::Check(const WorkersRun& run, const remote::Address& object,
                           ObjectUse use) const {
  if (use == ObjectUse::kRead) {
    const std::string name = remote::ToString(object);
    for (const std::string& list : {run.spec.weights.sha256, run.spec.data.list_sha256}) {
      if (list.empty()) continue;
      LH_ASSIGN_OR_RETURN(const bool named, lists_->NamesObject(list, name));
      if (named) return absl::OkStatus();
    }
  }
  return PermissionDenied("run {} does not name {} for its workers to {}", run.id.value(),
                          remote::ShownAddress(object), use == ObjectUse::kRead ? "read" : "write");
}

}  // namespace longhaul::coordinator
