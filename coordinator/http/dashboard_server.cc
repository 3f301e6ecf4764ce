#include "coordinator/http/dashboard_server.h"

#include <fmt/core.h>
#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <semaphore>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/address.h"
#include "base/web/assets.h"
#include "base/work_threads.h"
#include "coordinator/http/api.h"
#include "coordinator/http/careful_server.h"
#include "coordinator/http/page/assets.h"
#include "coordinator/http/reports.h"

namespace longhaul::coordinator {
namespace {

// Viewers hear of news at most so often, and of the coordinator's being there at least so often.
constexpr absl::Duration kShortestGap = absl::Milliseconds(250);
constexpr absl::Duration kLongestGap = absl::Seconds(2);
// Short, because an end waits for connections that do nothing.
constexpr time_t kIdleSeconds = 1;
constexpr time_t kReadSeconds = 1;
constexpr time_t kWriteSeconds = 5;

constexpr char kPagePolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
// A report brings its scripts and styles within itself, and reaches nothing else, nor this API.
constexpr char kReportPolicy[] =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts";

// If all threads are busy and `waiting` connections wait, enqueue blocks. Further connections then
// stay in the kernel's queue and take none of the coordinator's descriptors.
class BoundedThreads : public httplib::TaskQueue {
 public:
  BoundedThreads(size_t threads, size_t waiting)
      : room_(static_cast<ptrdiff_t>(threads + waiting)), threads_(threads) {}
  void enqueue(std::function<void()> task) override {
    room_.acquire();
    const auto run = [this, task = std::move(task)] {
      task();
      room_.release();
    };
    // A task that still waits at shutdown runs as well, to close its connection.
    threads_->Add(std::to_string(next_++), run, run);
  }
  // Runs waiting tasks on this thread, then waits for running ones.
  void shutdown() override { threads_.reset(); }

 private:
  std::counting_semaphore<> room_;
  uint64_t next_ = 0;  // a key of its own for each task, so that none waits for another
  std::optional<WorkThreads> threads_;
};

std::string_view TypeOf(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  return "text/plain; charset=utf-8";
}

int HttpStatus(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kFailedPrecondition:
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

// Not set_content: httplib would compress it, with brotli at its slowest, which takes seconds where
// a loopback interface takes milliseconds.
void SetBody(std::string text, const std::string& type, httplib::Response* response) {
  const auto body = std::make_shared<const std::string>(std::move(text));
  response->set_content_provider(body->size(), type,
                                 [body](size_t offset, size_t length, httplib::DataSink& sink) {
                                   return sink.write(body->data() + offset, length);
                                 });
}

void Fail(const Status& status, httplib::Response* response) {
  response->status = HttpStatus(status);
  const std::string message(Message(status));
  SetBody(nlohmann::json{{"error", message}}.dump(-1, ' ', false,
                                                  nlohmann::json::error_handler_t::replace),
          "application/json", response);
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
  std::string Next() {
    std::string frames;
    AppendNew("overview", api_->Overview(), &overview_, &frames);
    if (!run_.empty()) AppendNew("run", api_->Run(run_), &shown_, &frames);
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
  Impl(const DashboardOptions& wanted, Source* source)
      : options(wanted), api(source, wanted.version) {}

  Status Bind();
  void AddPage();
  void AddApi();
  void Follow(const httplib::Request& request, httplib::Response* response);
  bool Write(Follower* follower, uint64_t* seen, bool* first, httplib::DataSink* sink);

  const DashboardOptions options;
  std::string address;
  Api api;
  News news;
  std::atomic<size_t> streams{0};
  CarefulServer server;
  std::once_flag stopped;
  std::promise<void> ended;
  std::future<void> end = ended.get_future();
  std::thread thread;
};

Status CheckDashboardAddress(const std::string& listen) {
  LH_ASSIGN_OR_RETURN(const HostPort wanted, ParseHostPort(listen));
  if (IsLoopback(wanted.host)) return absl::OkStatus();
  return FailedPrecondition(
      "the dashboard would show everybody who reaches {} all runs, without encryption. Let it "
      "listen on 127.0.0.1, and look at it from elsewhere through `ssh -L 8080:127.0.0.1:{} "
      "HOST`",
      wanted.host, wanted.port == 0 ? 8080 : wanted.port);
}

Status DashboardServer::Impl::Bind() {
  LH_ASSIGN_OR_RETURN(HostPort bound, ParseHostPort(options.listen));
  server.new_task_queue = [] { return new BoundedThreads(kThreads, kWaiting); };
  // Not httplib's SO_REUSEPORT: with that two coordinators could share a port unnoticed.
  server.set_socket_options([](socket_t socket) {
    const int on = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  });
  server.set_keep_alive_timeout(kIdleSeconds);
  server.set_read_timeout(kReadSeconds);
  server.set_write_timeout(kWriteSeconds);
  server.set_payload_max_length(0);
  server.set_tcp_nodelay(true);
  if (bound.port == 0) {
    const int port = server.bind_to_any_port(bound.host);
    if (port > 0) bound.port = static_cast<uint16_t>(port);
  }
  if (bound.port == 0 ||
      (ParseHostPort(options.listen)->port != 0 && !server.bind_to_port(bound.host, bound.port))) {
    return Unavailable(
        "the dashboard cannot listen on {}: another program has the port, or the address is not "
        "this machine's",
        options.listen);
  }
  address = ToString(bound);
  return absl::OkStatus();
}

void DashboardServer::Impl::AddPage() {
  server.set_default_headers({{"X-Content-Type-Options", "nosniff"},
                              {"Referrer-Policy", "no-referrer"},
                              {"Cross-Origin-Resource-Policy", "same-origin"},
                              {"Cross-Origin-Opener-Policy", "same-origin"},
                              {"Cache-Control", "no-store"}});
  server.set_pre_routing_handler([](const httplib::Request& request, httplib::Response& response) {
    using Result = httplib::Server::HandlerResponse;
    if (!IsOurName(request.get_header_value("Host"))) {
      response.status = 421;
      response.set_content("The dashboard answers to 127.0.0.1 and localhost alone.\n",
                           "text/plain");
      return Result::Handled;
    }
    if (!IsOurPage(request)) {
      response.status = 403;
      return Result::Handled;
    }
    if (request.method == "GET" || request.method == "HEAD") return Result::Unhandled;
    response.status = 405;
    response.set_header("Allow", "GET, HEAD");
    return Result::Handled;
  });
  for (const std::span<const Asset> assets : {PageAssets(), UplotAssets()}) {
    for (const Asset& asset : assets) {
      const std::string path = asset.name == "index.html" ? "/" : fmt::format("/{}", asset.name);
      server.Get(path, [asset](const httplib::Request&, httplib::Response& response) {
        response.set_header("Content-Security-Policy", kPagePolicy);
        SetBody(std::string(asset.text), std::string(TypeOf(asset.name)), &response);
      });
    }
  }
}

void DashboardServer::Impl::AddApi() {
  using Request = httplib::Request;
  using Response = httplib::Response;
  const auto get = [this](const std::string& path, auto answer) {
    server.Get(path, [answer](const Request& request, Response& response) {
      StatusOr<std::string> text = answer(request, request.get_param_value("run"));
      if (!text.ok()) return Fail(text.status(), &response);
      SetBody(*std::move(text), "application/json", &response);
    });
  };
  using Text = StatusOr<std::string>;
  get("/api/overview", [this](const Request&, const std::string&) { return api.Overview(); });
  get("/api/run", [this](const Request&, const std::string& run) { return api.Run(run); });
  get("/api/steps", [this](const Request& request, const std::string& run) -> Text {
    LH_ASSIGN_OR_RETURN(const CurveWindow window, WindowOf(request));
    return api.Steps(run, window);
  });
  get("/api/workers", [this](const Request&, const std::string&) { return api.Workers(); });
  get("/api/events", [this](const Request& request, const std::string& run) -> Text {
    LH_ASSIGN_OR_RETURN(const uint64_t after, Number(request, "after", 0));
    return api.Events(run, after);
  });
  get("/api/checkpoints",
      [this](const Request&, const std::string& run) { return api.Checkpoints(run); });
  get("/api/timeline",
      [this](const Request&, const std::string& run) { return api.Timeline(run); });
  get("/api/reports",
      [this](const Request&, const std::string&) { return ReportsJson(options.reports); });
  server.Get("/api/live",
             [this](const Request& request, Response& response) { Follow(request, &response); });
  server.Get("/report", [this](const Request& request, Response& response) {
    const StatusOr<std::string> page = ReadReport(options.reports, request.get_param_value("name"));
    if (!page.ok()) return Fail(page.status(), &response);
    response.set_header("Content-Security-Policy", kReportPolicy);
    SetBody(*page, "text/html; charset=utf-8", &response);
  });
}

void DashboardServer::Impl::Follow(const httplib::Request& request, httplib::Response* response) {
  if (streams.fetch_add(1) >= kStreams) {
    streams.fetch_sub(1);
    return Fail(
        ResourceExhausted("{} pages follow this coordinator already; close one of them", kStreams),
        response);
  }
  const auto follower = std::make_shared<Follower>(&api, request.get_param_value("run"));
  response->set_chunked_content_provider(
      "text/event-stream",
      [this, follower, seen = uint64_t{0}, first = true](size_t, httplib::DataSink& sink) mutable {
        return Write(follower.get(), &seen, &first, &sink);
      },
      [this](bool) { streams.fetch_sub(1); });
}

bool DashboardServer::Impl::Write(Follower* follower, uint64_t* seen, bool* first,
                                  httplib::DataSink* sink) {
  if (!*first) {
    if (news.WaitForEnd(Deadline::After(kShortestGap))) return false;
    if (!news.Wait(Deadline::After(kLongestGap - kShortestGap), seen)) return false;
  }
  const std::string frames = follower->Next();
  *first = false;
  if (!sink->is_writable()) return false;
  return sink->write(frames.data(), frames.size());
}

StatusOr<std::unique_ptr<DashboardServer>> DashboardServer::Start(const DashboardOptions& options,
                                                                  Source* source) {
  LH_RETURN_IF_ERROR(CheckDashboardAddress(options.listen));
  auto impl = std::make_unique<Impl>(options, source);
  LH_RETURN_IF_ERROR(impl->Bind());
  impl->AddPage();
  impl->AddApi();
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

bool DashboardServer::Stop(Deadline deadline) {
  impl_->news.End();
  std::call_once(impl_->stopped, [this] { impl_->server.stop(); });
  return impl_->end.wait_until(deadline.time().ToChrono()) == std::future_status::ready;
}

}  // namespace longhaul::coordinator
