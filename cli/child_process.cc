#include "cli/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace selmcast {

Result<ChildProcess> ChildProcess::start(const std::vector<std::string>& arguments) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return failed(std::string("cannot make a pipe for a worker: ") + std::strerror(errno));
  }
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  std::vector<char*> argv;
  std::string program = "selmcast";
  argv.push_back(program.data());
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return failed(std::string("cannot start a worker: ") + std::strerror(errno));
  if (pid == 0) {
    // Only async-signal-safe calls up to exec.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::fcntl(write_end.get(), F_SETFL, 0);
    ::dup2(write_end.get(), STDERR_FILENO);
    ::execv("/proc/self/exe", argv.data());
    ::_exit(127);
  }
  return ChildProcess(pid, std::move(read_end));
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      errors_(std::move(other.errors_)),
      partial_(std::move(other.partial_)),
      last_line_(std::move(other.last_line_)),
      status_(other.status_) {}

ChildProcess::~ChildProcess() {
  if (pid_ < 0 || status_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::vector<std::string> ChildProcess::read_lines() {
  char buffer[4096];
  for (ssize_t got; (got = ::read(errors_.get(), buffer, sizeof buffer)) > 0;) {
    partial_.append(buffer, static_cast<std::size_t>(got));
  }
  std::vector<std::string> lines;
  std::size_t at = 0;
  for (std::size_t end; (end = partial_.find('\n', at)) != std::string::npos; at = end + 1) {
    lines.push_back(partial_.substr(at, end - at));
  }
  partial_.erase(0, at);
  if (!lines.empty()) last_line_ = lines.back();
  return lines;
}

std::optional<int> ChildProcess::ended() {
  if (status_) return status_;
  int status = 0;
  const pid_t got = ::waitpid(pid_, &status, WNOHANG);
  if (got == pid_) status_ = status;
  // Somebody else reaped it: how it ended is lost, and that it did is not.
  if (got < 0 && errno == ECHILD) status_ = W_EXITCODE(1, 0);
  return status_;
}

bool ChildProcess::stopped() const noexcept {
  if (status_) return false;
  siginfo_t info{};
  const auto pid = static_cast<id_t>(pid_);
  return ::waitid(P_PID, pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
}

void ChildProcess::kill(int signal) noexcept {
  if (!status_) ::kill(pid_, signal);
}

}  // namespace selmcast
