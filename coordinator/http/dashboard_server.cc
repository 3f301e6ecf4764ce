#include "coordinator/http/dashboard_server.h"

#include <fmt/core.h>
#include <httplib.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "base/address.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/web/assets.h"
#include "base/web/server/careful_server.h"
#include "coordinator/http/answers.h"
#include "coordinator/http/api.h"
#include "coordinator/http/change_routes.h"
#include "coordinator/http/page/assets.h"
#include "coordinator/http/reports.h"

namespace longhaul::coordinator {
namespace {

// Viewers hear of news at most so often, and of the coordinator's being there at least so often.
constexpr absl::Duration kShortestGap = absl::Milliseconds(250);
constexpr absl::Duration kLongestGap = absl::Seconds(2);
constexpr char kPagePolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
// A report brings its scripts and styles within itself, and reaches nothing else, nor this API.
constexpr char kReportPolicy[] =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts";

std::string_view TypeOf(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  return "text/plain; charset=utf-8";
}

// What the name in a browser's address bar resolves to may change to this machine (DNS rebinding);
// then the page of a stranger asks under the stranger's name.
bool IsOurName(const std::string& host) {
  const StatusOr<HostPort> parsed = ParseHostPort(host);
  return parsed.ok() ? IsLoopback(parsed->host) : IsLoopback(host);
}

// A browser says whose page asks. Another site's page can read nothing, but would take streams.
bool IsOurPage(const httplib::Request& request) {
  const std::string site = request.get_header_value("Sec-Fetch-Site");
  return site.empty() || site == "same-origin" || site == "none" ||
         !request.path.starts_with("/api");
}

StatusOr<uint64_t> Number(const httplib::Request& request, const std::string& name,
                          uint64_t otherwise) {
  if (!request.has_param(name)) return otherwise;
  uint64_t value = 0;
  if (absl::SimpleAtoi(request.get_param_value(name), &value)) return value;
  return InvalidArgument("{}: expected a number from 0", name);
}

StatusOr<CurveWindow> WindowOf(const httplib::Request& request) {
  CurveWindow window;
  LH_ASSIGN_OR_RETURN(window.first, Number(request, "first", window.first));
  LH_ASSIGN_OR_RETURN(window.last, Number(request, "last", window.last));
  LH_ASSIGN_OR_RETURN(window.points, Number(request, "points", window.points));
  if (window.points < 4 || window.points > CurveWindow::kMostPoints) {
    return InvalidArgument("points: expected 4 to {}, got {}", CurveWindow::kMostPoints,
                           window.points);
  }
  return window;
}

void AppendFrame(std::string_view name, const std::string& data, std::string* frames) {
  *frames += fmt::format("event: {}\ndata: {}\n\n", name, data);
}

// Who waits for news, and which there are.
class News {
 public:
  void Tell() {
    const std::lock_guard lock(mutex_);
    ++number_;
    changed_.notify_all();
  }
  void End() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  // False at the end. Else `*seen` is the number of the newest news, at the latest at `deadline`.
  bool Wait(Deadline deadline, uint64_t* seen) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline.time().ToChrono(),
                        [&] { return ended_ || number_ != *seen; });
    *seen = number_;
    return !ended_;
  }
  bool WaitForEnd(Deadline deadline) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline.time().ToChrono(), [&] { return ended_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t number_ = 0;
  bool ended_ = false;
};

// What one viewer has been sent.
class Follower {
 public:
  Follower(Api* api, std::string run) : api_(api), run_(std::move(run)) {}

  // What is new to the viewer, as frames of server-sent events.
  std::string Next(const Viewer& viewer) {
    std::string frames;
    AppendNew("overview", api_->Overview(viewer), &overview_, &frames);
    if (!run_.empty()) AppendNew("run", api_->Run(run_, viewer), &shown_, &frames);
    if (frames.empty()) AppendFrame("alive", "{}", &frames);
    return frames;
  }

 private:
  static void AppendNew(std::string_view name, const StatusOr<std::string>& text, std::string* sent,
                        std::string* frames) {
    if (!text.ok() || *text == *sent) return;
    *sent = *text;
    AppendFrame(name, *text, frames);
  }

  Api* const api_;
  const std::string run_;
  std::string overview_, shown_;
};

}  // namespace

struct DashboardServer::Impl {
  Impl(const DashboardOptions& wanted, Source* source, Changes* changes)
      : options(wanted), api(source, wanted.version), routes(changes) {}

  Status Bind();
  void AddPage();
  void AddApi();
  void AddReports();
  // Who looks. kUnauthenticated: others reach this server, and the request has no valid key.
  StatusOr<Viewer> ViewerOf(const Asker& asker) const {
    return routes.ViewerOf(asker, server.uses_tls());
  }
  httplib::Server::HandlerResponse Admit(const httplib::Request& request,
                                         httplib::Response* response) const;
  void Follow(const httplib::Request& request, httplib::Response* response);
  bool Write(Follower* follower, const Asker& asker, uint64_t* seen, bool* first,
             httplib::DataSink* sink);
  // What opens a report without a key, which a link cannot carry. It lasts as long as the process.
  std::string TicketOf(std::string_view report) const {
    return absl::BytesToHexString(HmacSha256(report_secret, report));
  }

  const DashboardOptions options;
  const std::string report_secret = RandomBytes(32);
  std::string address;
  Api api;
  const ChangeRoutes routes;
  News news;
  std::atomic<size_t> streams{0};
  web::CarefulServer server;
  std::once_flag stopped;
  std::promise<void> ended;
  std::future<void> end = ended.get_future();
  std::thread thread;
};

Status CheckDashboardAddress(const std::string& listen, bool encrypted) {
  LH_ASSIGN_OR_RETURN(const HostPort wanted, ParseHostPort(listen));
  if (encrypted || IsLoopback(wanted.host)) return absl::OkStatus();
  return FailedPrecondition(
      "the dashboard would show everybody who reaches {} all runs, without encryption. Let it "
      "listen on 127.0.0.1, and look at it from elsewhere through `ssh -L 8080:127.0.0.1:{} "
      "HOST`; or give it a certificate with --http-certificate and --http-key, and everybody needs "
      "a key of `longhaul dashboard-key`",
      wanted.host, wanted.port == 0 ? 8080 : wanted.port);
}

Status DashboardServer::Impl::Bind() {
  server.SetLimits(kThreads, kWaiting);
  server.set_payload_max_length(kMostChangeBytes);
  if (!options.certificate_file.empty()) {
    LH_RETURN_IF_ERROR(server.UseTls(options.certificate_file, options.key_file));
  }
  const StatusOr<std::string> bound = server.Bind(options.listen);
  if (!bound.ok()) return Annotate(bound.status(), "the dashboard");
  address = *bound;
  return absl::OkStatus();
}

httplib::Server::HandlerResponse DashboardServer::Impl::Admit(const httplib::Request& request,
                                                              httplib::Response* response) const {
  using Result = httplib::Server::HandlerResponse;
  // With TLS a browser knows that another name's page is another one by the certificate.
  if (!server.uses_tls() && !IsOurName(request.get_header_value("Host"))) {
    response->status = 421;
    response->set_content("The dashboard answers to 127.0.0.1 and localhost alone.\n",
                          "text/plain");
    return Result::Handled;
  }
  if (!IsOurPage(request)) {
    response->status = 403;
    return Result::Handled;
  }
  const bool change = ChangeRoutes::IsChange(request.path);
  if (request.method == "GET" || request.method == "HEAD") return Result::Unhandled;
  if (change && request.method == "POST") return Result::Unhandled;
  response->status = 405;
  response->set_header("Allow", change ? "POST" : "GET, HEAD");
  return Result::Handled;
}

void DashboardServer::Impl::AddPage() {
  server.set_default_headers({{"X-Content-Type-Options", "nosniff"},
                              {"Referrer-Policy", "no-referrer"},
                              {"Cross-Origin-Resource-Policy", "same-origin"},
                              {"Cross-Origin-Opener-Policy", "same-origin"},
                              {"Cache-Control", "no-store"}});
  server.set_pre_routing_handler(
      [this](const httplib::Request& request, httplib::Response& response) {
        return Admit(request, &response);
      });
  for (const std::span<const Asset> assets : {PageAssets(), UplotAssets()}) {
    for (const Asset& asset : assets) {
      const std::string path = asset.name == "index.html" ? "/" : fmt::format("/{}", asset.name);
      server.Get(path, [asset](const httplib::Request&, httplib::Response& response) {
        response.set_header("Content-Security-Policy", kPagePolicy);
        web::SendText(std::string(asset.text), std::string(TypeOf(asset.name)), &response);
      });
    }
  }
}

void DashboardServer::Impl::AddApi() {
  using Request = httplib::Request;
  using Response = httplib::Response;
  const auto get = [this](const std::string& path, auto answer) {
    server.Get(path, [this, answer](const Request& request, Response& response) {
      const StatusOr<Viewer> viewer = ViewerOf(AskerOf(request));
      if (!viewer.ok()) return Fail(viewer.status(), &response);
      Answer(answer(request, *viewer, request.get_param_value("run")), &response);
    });
  };
  using Text = StatusOr<std::string>;
  get("/api/overview", [this](const Request&, const Viewer& viewer, const std::string&) {
    return api.Overview(viewer);
  });
  get("/api/run", [this](const Request&, const Viewer& viewer, const std::string& run) {
    return api.Run(run, viewer);
  });
  get("/api/steps",
      [this](const Request& request, const Viewer& viewer, const std::string& run) -> Text {
        LH_ASSIGN_OR_RETURN(const CurveWindow window, WindowOf(request));
        return api.Steps(run, window, viewer);
      });
  get("/api/workers",
      [this](const Request&, const Viewer&, const std::string&) { return api.Workers(); });
  get("/api/joining", [this](const Request&, const Viewer&, const std::string&) -> Text {
    return JoiningJson(options.joining);
  });
  get("/api/events",
      [this](const Request& request, const Viewer& viewer, const std::string& run) -> Text {
        LH_ASSIGN_OR_RETURN(const uint64_t after, Number(request, "after", 0));
        return api.Events(run, after, viewer);
      });
  get("/api/checkpoints", [this](const Request&, const Viewer& viewer, const std::string& run) {
    return api.Checkpoints(run, viewer);
  });
  get("/api/timeline", [this](const Request&, const Viewer& viewer, const std::string& run) {
    return api.Timeline(run, viewer);
  });
  get("/api/reports", [this](const Request&, const Viewer&, const std::string&) {
    return ReportsJson(options.reports, [this](std::string_view name) { return TicketOf(name); });
  });
  routes.AddTo(&server);
  server.Get("/api/live",
             [this](const Request& request, Response& response) { Follow(request, &response); });
}

void DashboardServer::Impl::AddReports() {
  server.Get("/report", [this](const httplib::Request& request, httplib::Response& response) {
    const std::string name = request.get_param_value("name");
    if (server.uses_tls() &&
        !ConstantTimeEqual(request.get_param_value("ticket"), TicketOf(name))) {
      return Fail(absl::UnauthenticatedError("open the report from the dashboard's list of them"),
                  &response);
    }
    const StatusOr<std::string> page = ReadReport(options.reports, name);
    if (!page.ok()) return Fail(page.status(), &response);
    response.set_header("Content-Security-Policy", kReportPolicy);
    web::SendText(*page, "text/html; charset=utf-8", &response);
  });
}

void DashboardServer::Impl::Follow(const httplib::Request& request, httplib::Response* response) {
  const Asker asker = AskerOf(request);
  if (const StatusOr<Viewer> viewer = ViewerOf(asker); !viewer.ok()) {
    return Fail(viewer.status(), response);
  }
  if (streams.fetch_add(1) >= kStreams) {
    streams.fetch_sub(1);
    return Fail(
        ResourceExhausted("{} pages follow this coordinator already; close one of them", kStreams),
        response);
  }
  const auto follower = std::make_shared<Follower>(&api, request.get_param_value("run"));
  response->set_chunked_content_provider(
      "text/event-stream",
      [this, follower, asker, seen = uint64_t{0}, first = true](size_t,
                                                                httplib::DataSink& sink) mutable {
        return Write(follower.get(), asker, &seen, &first, &sink);
      },
      [this](bool) { streams.fetch_sub(1); });
}

bool DashboardServer::Impl::Write(Follower* follower, const Asker& asker, uint64_t* seen,
                                  bool* first, httplib::DataSink* sink) {
  if (!*first) {
    if (news.WaitForEnd(Deadline::After(kShortestGap))) return false;
    if (!news.Wait(Deadline::After(kLongestGap - kShortestGap), seen)) return false;
  }
  // Each time, because a key ends, and its owner may be revoked.
  const StatusOr<Viewer> viewer = ViewerOf(asker);
  if (!viewer.ok()) return false;
  const std::string frames = follower->Next(*viewer);
  *first = false;
  if (!sink->is_writable()) return false;
  return sink->write(frames.data(), frames.size());
}

StatusOr<std::unique_ptr<DashboardServer>> DashboardServer::Start(const DashboardOptions& options,
                                                                  Source* source,
                                                                  Changes* changes) {
  LH_RETURN_IF_ERROR(CheckDashboardAddress(options.listen, !options.certificate_file.empty()));
  auto impl = std::make_unique<Impl>(options, source, changes);
  LH_RETURN_IF_ERROR(impl->Bind());
  impl->AddPage();
  impl->AddApi();
  impl->AddReports();
  impl->thread = std::thread([raw = impl.get()] {
    raw->server.listen_after_bind();
    raw->ended.set_value();
  });
  // Else a stop could come before the server runs, and be forgotten.
  while (!impl->server.is_running()) std::this_thread::yield();
  return std::unique_ptr<DashboardServer>(new DashboardServer(std::move(impl)));
}

DashboardServer::DashboardServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

DashboardServer::~DashboardServer() {
  Stop(Deadline::After(absl::ZeroDuration()));
  impl_->thread.join();
}

const std::string& DashboardServer::address() const {
  return impl_->address;
}

void DashboardServer::OnNews() {
  impl_->news.Tell();
}

bool DashboardServer::encrypted() const {
  return impl_->server.uses_tls();
}

bool DashboardServer::Stop(Deadline deadline) {
  impl_->news.End();
  std::call_once(impl_->stopped, [this] { impl_->server.stop(); });
  return impl_->end.wait_until(deadline.time().ToChrono()) == std::future_status::ready;
}

}  // namespace longhaul::coordinator
