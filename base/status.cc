#include "base/status.h"

#include <fmt/core.h>

#include <string>

#include "absl/strings/cord.h"

namespace longhaul {

Status Annotate(const Status& status, std::string_view context) {
  if (status.ok()) return status;
  Status annotated(status.code(), fmt::format("{}: {}", context, Message(status)));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    annotated.SetPayload(type, payload);
  });
  return annotated;
}

Status FromException(std::string_view what, const std::exception& error) {
  return Internal("{}: {}", what, error.what());
}

Status FromErrno(std::string_view what, int error_number) {
  return absl::ErrnoToStatus(error_number, std::string(what));
}

}  // namespace longhaul
