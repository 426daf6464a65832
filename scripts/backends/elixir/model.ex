defmodule CpLoop.Model do
  @moduledoc """
  The program that asks the model, cp-llm. It answers each prompt with a message and keeps running, so
  one process serves all turns. Its standard input ends with the conversation.
  """

  alias CpLoop.Wire

  @grace_ms 1500
  @brief_ms 100

  defstruct [:port, :pid, :name, part: []]

  @doc "Starts the program. The kernel stops it when this runtime ends for any reason."
  def start([program | _] = command) do
    options = [:binary, :exit_status, {:line, 65_536}, {:args, ["--pdeathsig", "TERM", "--" | command]}]
    port = Port.open({:spawn_executable, System.find_executable("setpriv")}, options)
    {:os_pid, pid} = Port.info(port, :os_pid)
    %__MODULE__{port: port, pid: pid, name: Path.basename(program)}
  end

  def ask(model, question), do: Port.command(model.port, question)

  @doc "Decodes a message of the port: a line, a part of a line, or the end."
  def take(%{port: port} = model, {port, {:data, {:noeol, bytes}}}), do: {:part, %{model | part: [model.part, bytes]}}
  def take(%{port: port} = model, {port, {:data, {:eol, bytes}}}), do: {:line, [model.part, bytes], %{model | part: []}}

  def take(%{port: port} = model, {port, {:exit_status, status}}),
    do: {:gone, "#{model.name} ended with status #{status}"}

  def take(%{port: port} = model, {:EXIT, port, _reason}), do: {:gone, "#{model.name} reads no more"}

  @doc "Lets the program end by itself, so that its last ledger entry comes before ours."
  def finish(model) do
    unless_gone(fn -> Port.command(model.port, Wire.closing({[]})) end)
    leave(model, @grace_ms)
  end

  @doc "Stops the program."
  def stop(model), do: leave(model, @brief_ms)

  defp leave(model, grace_ms) do
    unless_gone(fn -> Port.close(model.port) end)
    gone?(model, grace_ms) || signal(model, "TERM")
    gone?(model, @grace_ms) || (signal(model, "KILL") && gone?(model, @grace_ms))
  end

  # A program that leaves takes its port with it, at any moment: to ask first whether it is there proves nothing.
  defp unless_gone(act) do
    act.()
  rescue
    ArgumentError -> false
  end

  # The program leads its own process group.
  defp signal(model, name), do: :os.cmd('kill -#{name} -#{model.pid} 2>/dev/null')

  defp gone?(model, left_ms) do
    cond do
      not File.exists?("/proc/#{model.pid}") -> true
      left_ms <= 0 -> false
      true -> Process.sleep(5) && gone?(model, left_ms - 5)
    end
  end
end
