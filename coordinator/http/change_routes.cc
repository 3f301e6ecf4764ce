#include "coordinator/http/change_routes.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/str_join.h"
#include "coordinator/http/answers.h"

namespace longhaul::coordinator {
namespace {

using nlohmann::json;

constexpr std::string_view kSubmitPath = "/api/submit", kStopPath = "/api/stop";
constexpr std::string_view kScheme = "Bearer ";
// A submission may wait until large lists of its data are read.
constexpr absl::Duration kChangeLimit = absl::Seconds(30);

std::string OneLine(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Status NoKey() {
  return absl::UnauthenticatedError(
      "expected a key; `longhaul dashboard-key` prints one, for the page's button Sign in");
}

// The body of a change: an object of texts and truth values.
class Body {
 public:
  static StatusOr<Body> Of(const httplib::Request& request) {
    if (!request.get_header_value("Content-Type").starts_with("application/json")) {
      return absl::InvalidArgumentError("expected a body of type application/json");
    }
    if (request.body.size() > kMostChangeBytes) {
      return InvalidArgument("expected at most {} bytes, got {}", kMostChangeBytes,
                             request.body.size());
    }
    json parsed = json::parse(request.body, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object()) return absl::InvalidArgumentError("expected a JSON object");
    return Body(std::move(parsed));
  }
  StatusOr<std::string> Text(const char* name) const {
    const auto found = body_.find(name);
    if (found == body_.end()) return std::string();
    if (!found->is_string()) return InvalidArgument("{}: expected a text", name);
    return found->get<std::string>();
  }
  StatusOr<bool> Truth(const char* name) const {
    const auto found = body_.find(name);
    if (found == body_.end()) return false;
    if (!found->is_boolean()) return InvalidArgument("{}: expected true or false", name);
    return found->get<bool>();
  }

 private:
  explicit Body(json body) : body_(std::move(body)) {}
  json body_;
};

}  // namespace

Asker AskerOf(const httplib::Request& request) {
  Asker asker{.key = {}, .address = request.remote_addr};
  const std::string header = request.get_header_value("Authorization");
  if (header.starts_with(kScheme)) asker.key = header.substr(kScheme.size());
  return asker;
}

bool ChangeRoutes::IsChange(const std::string& path) {
  return path == kSubmitPath || path == kStopPath;
}

StatusOr<Viewer> ChangeRoutes::ViewerOf(const Asker& asker, bool needs_key) const {
  if (!needs_key) return Viewer();
  if (asker.key.empty() || changes_ == nullptr) return NoKey();
  return changes_->Identify(asker);
}

StatusOr<std::string> ChangeRoutes::Me(const httplib::Request& request) const {
  if (changes_ == nullptr) return NoKey();
  LH_ASSIGN_OR_RETURN(const Viewer viewer, changes_->Identify(AskerOf(request)));
  return OneLine({{"name", viewer.name}, {"role", viewer.role}});
}

StatusOr<std::string> ChangeRoutes::Submission(const httplib::Request& request) const {
  if (changes_ == nullptr) return NoKey();
  LH_ASSIGN_OR_RETURN(const v1::SubmitRequest submission,
                      changes_->Submission(AskerOf(request), request.get_param_value("run")));
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const v1::DataFile& file : submission.data_files()) {
    files.push_back({{"name", file.name()}, {"bytes", file.bytes()}});
  }
  return OneLine({{"yaml", submission.run_yaml()}, {"files", std::move(files)}});
}

StatusOr<std::string> ChangeRoutes::Submit(const httplib::Request& request) const {
  if (changes_ == nullptr) return NoKey();
  LH_ASSIGN_OR_RETURN(const Body body, Body::Of(request));
  Changes::Wanted wanted;
  LH_ASSIGN_OR_RETURN(wanted.run, body.Text("run"));
  LH_ASSIGN_OR_RETURN(wanted.yaml, body.Text("yaml"));
  LH_ASSIGN_OR_RETURN(wanted.resume, body.Truth("resume"));
  LH_ASSIGN_OR_RETURN(const v1::SubmitReply reply,
                      changes_->Submit(AskerOf(request), wanted, Deadline::After(kChangeLimit)));
  return OneLine({{"run_id", reply.run_id()}, {"notes", absl::StrJoin(reply.notes(), "; ")}});
}

StatusOr<std::string> ChangeRoutes::Stop(const httplib::Request& request) const {
  if (changes_ == nullptr) return NoKey();
  LH_ASSIGN_OR_RETURN(const Body body, Body::Of(request));
  LH_ASSIGN_OR_RETURN(const std::string run, body.Text("run"));
  LH_ASSIGN_OR_RETURN(const bool now, body.Truth("now"));
  LH_ASSIGN_OR_RETURN(const v1::StopReply reply,
                      changes_->Stop(AskerOf(request), run, now, Deadline::After(kChangeLimit)));
  return OneLine({{"message", reply.message()}});
}

void ChangeRoutes::AddTo(httplib::Server* server) const {
  using Request = httplib::Request;
  using Response = httplib::Response;
  server->Get("/api/me", [routes = *this](const Request& request, Response& response) {
    Answer(routes.Me(request), &response);
  });
  server->Get("/api/submission", [routes = *this](const Request& request, Response& response) {
    Answer(routes.Submission(request), &response);
  });
  server->Post(std::string(kSubmitPath),
               [routes = *this](const Request& request, Response& response) {
                 Answer(routes.Submit(request), &response);
               });
  server->Post(std::string(kStopPath),
               [routes = *this](const Request& request, Response& response) {
                 Answer(routes.Stop(request), &response);
               });
}

}  // namespace longhaul::coordinator
