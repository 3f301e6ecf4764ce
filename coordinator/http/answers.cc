#include "coordinator/http/answers.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/web/server/careful_server.h"

namespace longhaul::coordinator {
namespace {

int HttpStatus(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
      return 409;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

}  // namespace

void Fail(const Status& status, httplib::Response* response) {
  response->status = HttpStatus(status);
  const std::string message(Message(status));
  web::SendText(nlohmann::json{{"error", message}}.dump(-1, ' ', false,
                                                        nlohmann::json::error_handler_t::replace),
                "application/json", response);
}

void Answer(StatusOr<std::string> text, httplib::Response* response) {
  if (!text.ok()) return Fail(text.status(), response);
  web::SendText(*std::move(text), "application/json", response);
}

}  // namespace longhaul::coordinator
