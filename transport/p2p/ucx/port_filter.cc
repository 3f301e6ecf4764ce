#include "transport/p2p/ucx/port_filter.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/unique_fd.h"

namespace longhaul::transport::ucx {
namespace {

constexpr Host kLocalhost = INADDR_LOOPBACK;
// The offset of the sender's address in the IPv4 header, which SKF_NET_OFF stands for.
constexpr uint32_t kSenderAt = static_cast<uint32_t>(SKF_NET_OFF) + 12;
constexpr uint32_t kPass = ~uint32_t{0};

bool IsIpv4(const SocketAddress& address) {
  return address.get()->sa_family == AF_INET;
}

Host HostOf(const SocketAddress& address) {
  return ntohl(reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr.s_addr);
}

bool IsLoopback(Host host) {
  return host >> 24 == 127;
}

bool IsThisMachine(Host host) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(host);
  const UniqueFd probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return probe &&
         ::bind(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

bool Listens(int fd) {
  int value = 0;
  socklen_t size = sizeof(value);
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &size) != 0 || value != AF_INET) return false;
  size = sizeof(value);
  return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &size) == 0 && value != 0;
}

Status Attach(int fd, std::vector<sock_filter> program) {
  sock_fprog whole{};
  whole.len = static_cast<unsigned short>(program.size());
  whole.filter = program.data();
  if (::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &whole, sizeof(whole)) == 0) {
    return absl::OkStatus();
  }
  return FromErrno("the kernel takes no filter for a port of UCX", errno);
}

// Nobody had been admitted when these connections came.
void DropQueue(int fd) {
  // UCX's listening sockets do not block.
  while (true) {
    const UniqueFd one(::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC));
    if (!one) return;
  }
}

}  // namespace

std::vector<sock_filter> FilterFor(const std::set<Host>& hosts) {
  std::vector<sock_filter> program = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kSenderAt)};
  for (const Host host : hosts) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, host, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, kPass));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, 0));
  return program;
}

Status TakesFilters() {
  const UniqueFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!probe) return FromErrno("cannot make a socket", errno);
  if (const Status taken = Attach(probe.get(), FilterFor({})); !taken.ok()) {
    return FailedPrecondition(
        "{}: without one, anybody could end this process through that port; start it as root, or "
        "with the capability CAP_NET_ADMIN",
        Message(taken));
  }
  return absl::OkStatus();
}

StatusOr<std::set<int>> ListeningSockets() {
  std::set<int> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (Listens(fd)) found.insert(fd);
  }
  if (error) return FromErrno("cannot list the descriptors in /proc/self/fd", error.value());
  return found;
}

StatusOr<std::shared_ptr<PortFilter>> PortFilter::Create(std::set<int> sockets,
                                                         const SocketAddress& own) {
  const std::shared_ptr<PortFilter> filter(new PortFilter(std::move(sockets), HostOf(own)));
  LH_RETURN_IF_ERROR(filter->Apply());
  for (const int fd : filter->sockets_) DropQueue(fd);
  return filter;
}

Status PortFilter::Apply() const {
  std::vector<sock_filter> program = {BPF_STMT(BPF_RET | BPF_K, kPass)};
  if (all_ == 0) {
    std::set<Host> hosts;
    for (const auto& [host, count] : admitted_) hosts.insert(host);
    program = FilterFor(hosts);
  }
  for (const int fd : sockets_) LH_RETURN_IF_ERROR(Attach(fd, program));
  return absl::OkStatus();
}

void PortFilter::ApplyOrLog() const {
  if (const Status status = Apply(); !status.ok()) {
    LogError("the hosts that may connect over ucx stay those of before: {}", Message(status));
  }
}

std::shared_ptr<void> PortFilter::Admit(const std::vector<SocketAddress>& peers) {
  std::set<Host> hosts;
  for (const SocketAddress& peer : peers) {
    if (!IsIpv4(peer)) continue;
    const Host host = HostOf(peer);
    hosts.insert(host);
    if (!IsLoopback(host) && !IsThisMachine(host)) continue;
    hosts.insert(own_);
    if (IsLoopback(own_)) hosts.insert(kLocalhost);
  }
  return Hold(std::move(hosts));
}

std::shared_ptr<void> PortFilter::Hold(std::set<Host> hosts) {
  if (admitted_.size() + hosts.size() > kMostHosts) {
    LogError("{} hosts may connect over ucx already; {} more cannot", admitted_.size(),
             hosts.size());
    return nullptr;
  }
  bool is_new = false;
  for (const Host host : hosts) is_new |= ++admitted_[host] == 1;
  if (is_new) ApplyOrLog();
  return {nullptr, [self = shared_from_this(), hosts = std::move(hosts)](void*) {
            bool is_last = false;
            for (const Host host : hosts) {
              const auto found = self->admitted_.find(host);
              if (--found->second > 0) continue;
              self->admitted_.erase(found);
              is_last = true;
            }
            if (is_last) self->ApplyOrLog();
          }};
}

std::shared_ptr<void> PortFilter::AdmitAll() {
  if (++all_ == 1) ApplyOrLog();
  return {nullptr, [self = shared_from_this()](void*) {
            if (--self->all_ == 0) self->ApplyOrLog();
          }};
}

}  // namespace longhaul::transport::ucx
