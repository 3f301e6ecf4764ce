#include "base/http/client.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <mutex>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/http/retries.h"
#include "base/printable.h"
#include "base/version.h"

namespace longhaul::http {
namespace {

constexpr uint64_t kMostHeaderBytes = 256 << 10;
constexpr size_t kMostErrorBytes = 64 << 10;
constexpr size_t kMostIdleHandles = 16;

struct CurlDeleter {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};
using Handle = std::unique_ptr<CURL, CurlDeleter>;

struct ShareDeleter {
  void operator()(CURLSH* share) const { curl_share_cleanup(share); }
};

// Null: libcurl does not start.
using Connections = std::unique_ptr<CURLSH, ShareDeleter>;
Connections NewConnections() {
  Connections made(curl_share_init());
  for (const curl_lock_data data : {CURL_LOCK_DATA_CONNECT, CURL_LOCK_DATA_SSL_SESSION}) {
    if (made != nullptr && curl_share_setopt(made.get(), CURLSHOPT_SHARE, data) != CURLSHE_OK) {
      made = nullptr;
    }
  }
  return made;
}

// A handle of libcurl for one request, and the connections that requests leave open. The handle is
// not used again: libcurl 7.88 keeps a pointer to a freed header in it, through which the first
// line of the next answer writes if it begins with a space. Destroyed in this order: the handle
// first.
struct Session {
  Connections connections;
  Handle handle;
};

struct ListDeleter {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using HeaderList = std::unique_ptr<curl_slist, ListDeleter>;

// One request to one server, while it runs.
struct Transfer {
  const Request& request;
  const Url& url;
  const Call& call;
  const Receiver* receiver;
  const ClientOptions& options;
  CURL* curl = nullptr;

  Answer answer = {};
  uint64_t header_bytes = 0, body_bytes = 0;
  size_t sent = 0;
  bool has_begun = false;
  bool refused_address = false;
  Status status = {};

  bool Begin() {
    if (has_begun) return status.ok();
    has_begun = true;
    long code = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
    answer.code = static_cast<int>(code);
    if (answer.ok() && receiver != nullptr && receiver->begin) status = receiver->begin(answer);
    return status.ok();
  }

  Status Take(std::string_view piece) {
    if (!answer.ok()) {
      answer.body += piece.substr(0, kMostErrorBytes - answer.body.size());
      return absl::OkStatus();
    }
    if (receiver != nullptr) return receiver->take(piece);
    body_bytes += piece.size();
    if (body_bytes > request.body_limit) {
      return FailedPrecondition("{}: expected an answer of at most {} bytes, got more",
                                ShownUrl(url.text), request.body_limit);
    }
    answer.body += piece;
    return absl::OkStatus();
  }
};

Transfer& Of(void* transfer) {
  return *static_cast<Transfer*>(transfer);
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r' ||
                           text.back() == '\n')) {
    text.remove_suffix(1);
  }
  return text;
}

// Libcurl's callbacks. They must not throw.
size_t OnHeader(char* data, size_t size, size_t count, void* transfer) {
  Transfer& self = Of(transfer);
  const std::string_view line(data, size * count);
  self.header_bytes += line.size();
  if (self.header_bytes > kMostHeaderBytes) {
    self.status = FailedPrecondition("{}: expected at most {} bytes of headers, got more",
                                     ShownUrl(self.url.text), kMostHeaderBytes);
    return 0;
  }
  if (line.starts_with("HTTP/")) self.answer.headers.clear();  // after "100 Continue"
  const size_t colon = line.find(':');
  if (colon != std::string_view::npos) {
    std::string name(line.substr(0, colon));
    std::ranges::transform(name, name.begin(), [](char letter) {
      return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
    });
    self.answer.headers[name] = Trimmed(line.substr(colon + 1));
  }
  return line.size();
}

size_t OnBody(char* data, size_t size, size_t count, void* transfer) {
  Transfer& self = Of(transfer);
  if (!self.Begin()) return 0;
  self.status = self.Take(std::string_view(data, size * count));
  return self.status.ok() ? size * count : 0;
}

size_t OnSend(char* data, size_t size, size_t count, void* transfer) {
  Transfer& self = Of(transfer);
  const auto rest = self.request.body.subspan(self.sent);
  const size_t bytes = std::min(rest.size(), size * count);
  std::copy_n(reinterpret_cast<const char*>(rest.data()), bytes, data);
  self.sent += bytes;
  return bytes;
}

int OnRewind(void* transfer, curl_off_t offset, int) {
  Of(transfer).sent = static_cast<size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

int OnProgress(void* transfer, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  Transfer& self = Of(transfer);
  if (self.status.ok()) self.status = self.call.Check();
  return self.status.ok() ? 0 : 1;
}

// The IP address is known here, after the lookup of the name, so no later lookup can change it.
curl_socket_t OnSocket(void* transfer, curlsocktype, struct curl_sockaddr* address) {
  Transfer& self = Of(transfer);
  if (!MayConnect(self.url, address->addr, self.options.hosts)) {
    self.refused_address = true;
    return CURL_SOCKET_BAD;
  }
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

Status ErrorOf(const Transfer& transfer, CURLcode code, const char* message) {
  const std::string shown = ShownUrl(transfer.url.text);
  if (transfer.refused_address && code == CURLE_COULDNT_CONNECT) {
    return PermissionDenied(
        "{}: {} is a private or local address; expected one of the public internet, or one that is "
        "allowed",
        shown, transfer.url.host);
  }
  const std::string text =
      fmt::format("{}: {}", shown, message[0] != '\0' ? message : curl_easy_strerror(code));
  switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return absl::InvalidArgumentError(text);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return absl::FailedPreconditionError(text);
    default:
      return absl::UnavailableError(text);
  }
}

// Rounded up, because libcurl takes 0 for "no limit".
long Milliseconds(absl::Duration duration) {
  return static_cast<long>(
      std::clamp<int64_t>(absl::ToInt64Milliseconds(duration) + 1, 1, 1'000'000'000));
}

HeaderList HeadersOf(const Request& request, bool with_secrets) {
  HeaderList list;
  const auto add = [&](const std::string& header) {
    curl_slist* const longer = curl_slist_append(list.get(), header.c_str());
    LH_CHECK(longer != nullptr, "no memory for a header");
    [[maybe_unused]] curl_slist* const same = list.release();
    list.reset(longer);
  };
  add("Expect:");                    // do not wait for "100 Continue"
  add("Accept-Encoding: identity");  // sizes and ranges are those of the object itself
  for (const std::string& header : request.headers) add(header);
  for (const std::string& header : request.secrets) {
    if (with_secrets) add(header);
  }
  return list;
}

// A header with the end of a line in it would become two.
Status CheckHeaders(const Request& request) {
  for (const auto* headers : {&request.headers, &request.secrets}) {
    for (const std::string& header : *headers) {
      const bool is_good = std::ranges::none_of(header, [](char letter) {
        return (static_cast<unsigned char>(letter) < 0x20 && letter != '\t') || letter == 0x7f;
      });
      if (is_good) continue;
      return InvalidArgument(
          "{}: the header {} has control characters in it; check where it is from",
          ShownUrl(request.url), Printable(header.substr(0, header.find(':')), 100));
    }
  }
  return absl::OkStatus();
}

bool HasBody(const Request& request) {
  return request.method == "PUT" || request.method == "POST";
}

CURLcode SetUp(Transfer& transfer, const HeaderList& headers, char* message) {
  CURL* const curl = transfer.curl;
  const Request& request = transfer.request;
  const ClientOptions& options = transfer.options;
  static const std::string agent = fmt::format("longhaul/{}", Version());
  CURLcode code = CURLE_OK;
  const auto set = [&](CURLoption option, auto value) {
    if (code == CURLE_OK) code = curl_easy_setopt(curl, option, value);
  };
  void* const self = &transfer;
  set(CURLOPT_URL, transfer.url.text.c_str());
  set(CURLOPT_PATH_AS_IS, 1L);  // signed as written
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  // Ranges run side by side on connections of their own.
  set(CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
  if (!options.hosts.environment_proxy) set(CURLOPT_PROXY, "");
  if (!options.ca_file.empty()) set(CURLOPT_CAINFO, options.ca_file.c_str());
  set(CURLOPT_CONNECTTIMEOUT_MS, Milliseconds(options.connect_limit));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME,
      std::max(1L, static_cast<long>(absl::ToInt64Seconds(options.silence_limit))));
  set(CURLOPT_TIMEOUT_MS, Milliseconds(transfer.call.deadline.Remaining()));
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_USERAGENT, agent.c_str());
  set(CURLOPT_ERRORBUFFER, message);
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_HEADERFUNCTION, &OnHeader);
  set(CURLOPT_HEADERDATA, self);
  set(CURLOPT_WRITEFUNCTION, &OnBody);
  set(CURLOPT_WRITEDATA, self);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &OnProgress);
  set(CURLOPT_XFERINFODATA, self);
  set(CURLOPT_OPENSOCKETFUNCTION, &OnSocket);
  set(CURLOPT_OPENSOCKETDATA, self);
  if (request.method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  } else if (HasBody(request)) {
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_READFUNCTION, &OnSend);
    set(CURLOPT_READDATA, self);
    set(CURLOPT_SEEKFUNCTION, &OnRewind);
    set(CURLOPT_SEEKDATA, self);
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  } else if (request.method != "GET") {
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
  return code;
}

StatusOr<Answer> Perform(Transfer& transfer, bool with_secrets) {
  LH_RETURN_IF_ERROR(transfer.call.Check());
  std::array<char, CURL_ERROR_SIZE> message{};
  const HeaderList headers = HeadersOf(transfer.request, with_secrets);
  CURLcode code = SetUp(transfer, headers, message.data());
  if (code == CURLE_OK) code = curl_easy_perform(transfer.curl);
  LH_RETURN_IF_ERROR(transfer.status);
  if (code == CURLE_OPERATION_TIMEDOUT) LH_RETURN_IF_ERROR(transfer.call.Check());
  if (code != CURLE_OK) return ErrorOf(transfer, code, message.data());
  transfer.Begin();  // an answer without a body
  LH_RETURN_IF_ERROR(transfer.status);
  transfer.answer.url = transfer.url.text;
  return std::move(transfer.answer);
}

bool IsRedirect(const Answer& answer) {
  switch (answer.code) {
    case 301:
    case 302:
    case 303:
    case 307:
    case 308:
      return true;
    default:
      return false;
  }
}

std::optional<absl::Duration> RetryAfter(const Answer& answer) {
  const std::string& text = answer.Header("retry-after");
  // A date is taken for no wish: clocks of servers differ from ours.
  uint32_t seconds = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size()) {
    return std::nullopt;
  }
  return absl::Seconds(seconds);
}

}  // namespace

struct Client::Handles {
  std::mutex mutex;
  std::vector<Connections> idle;  // one thread at a time uses each

  // Without a handle: libcurl does not start.
  Session Take() {
    static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
    if (ready != CURLE_OK) return {};
    Session session;
    {
      const std::lock_guard lock(mutex);
      if (!idle.empty()) {
        session.connections = std::move(idle.back());
        idle.pop_back();
      }
    }
    if (session.connections == nullptr) session.connections = NewConnections();
    if (session.connections == nullptr) return {};
    session.handle.reset(curl_easy_init());
    return session;
  }
  void Return(Session session) {
    session.handle.reset();  // nothing of the request stays
    const std::lock_guard lock(mutex);
    if (idle.size() < kMostIdleHandles) idle.push_back(std::move(session.connections));
  }
};

Status Call::Check() const {
  if (given_up && given_up()) return absl::CancelledError("given up");
  if (deadline.Expired()) return absl::DeadlineExceededError("the deadline has passed");
  return absl::OkStatus();
}

const std::string& Answer::Header(std::string_view name) const {
  static const std::string kNone;
  const auto found = headers.find(name);
  return found == headers.end() ? kNone : found->second;
}

Client::Client(ClientOptions options)
    : options_(std::move(options)), handles_(std::make_unique<Handles>()) {}
Client::~Client() = default;

StatusOr<Answer> Client::Send(const Request& request, const Call& call,
                              const Receiver* receiver) const {
  LH_ASSIGN_OR_RETURN(Url url, ParseUrl(request.url));
  LH_RETURN_IF_ERROR(CheckHeaders(request));
  const std::string first_origin = url.origin();
  const bool follows =
      request.redirects > 0 && (request.method == "GET" || request.method == "HEAD");
  for (int redirects = 0;; ++redirects) {
    LH_RETURN_IF_ERROR(CheckUrl(url, options_.hosts));
    Session session = handles_->Take();
    if (session.handle == nullptr) return absl::InternalError("libcurl does not start");
    Transfer transfer{.request = request,
                      .url = url,
                      .call = call,
                      .receiver = receiver,
                      .options = options_,
                      .curl = session.handle.get()};
    if (curl_easy_setopt(transfer.curl, CURLOPT_SHARE, session.connections.get()) != CURLE_OK) {
      return absl::InternalError("libcurl does not keep connections");
    }
    StatusOr<Answer> answer = Perform(transfer, url.origin() == first_origin);
    handles_->Return(std::move(session));
    if (!answer.ok() || !follows || !IsRedirect(*answer)) return answer;
    LH_ASSIGN_OR_RETURN(Url next, FollowUrl(url, answer->Header("location")));
    answer->redirect = next.text;
    if (!request.leaves_origin && next.origin() != first_origin) return answer;
    if (redirects == request.redirects) {
      return FailedPrecondition("{}: expected at most {} redirects, got one more",
                                ShownUrl(request.url), request.redirects);
    }
    if (url.scheme == "https" && next.scheme != "https") {
      return FailedPrecondition("{}: a redirect leads from https to http; use another address",
                                ShownUrl(request.url));
    }
    url = std::move(next);
  }
}

Status ErrorOfAnswer(std::string_view what, const Answer& answer, std::string_view reason) {
  const std::string text =
      fmt::format("{}: the server answers {}{}{}{}", what, answer.code, reason.empty() ? "" : " (",
                  reason, reason.empty() ? "" : ")");
  switch (answer.code) {
    case 401:
    case 403:
      return absl::PermissionDeniedError(text);
    case 404:
    case 410:
      return absl::NotFoundError(text);
    case 408:
    case 425:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
      if (const auto pause = RetryAfter(answer)) {
        return WithRetryAfter(absl::UnavailableError(text), *pause);
      }
      return absl::UnavailableError(text);
    default:
      return absl::FailedPreconditionError(text);
  }
}

}  // namespace longhaul::http
