# Attempts of a program in an image to leave it, to reach the task of another tenant, and the
# executor of its node. Arguments: process id of the other program, its task folder, its checkpoint
# folder, the data folder of the executor, process id of the executor. Prints a line per attempt:
# `NAME: refused: REASON` or `NAME: SUCCEEDED`.

PID=$1 TASK=$2 CHECKPOINTS=$3 DATA=$4 DAEMON=$5
count=0

try() {
  name=$1
  shift
  count=$((count + 1))
  if sh -c "$*" >/dev/null 2>/tmp/error; then
    echo "$name: SUCCEEDED"
  else
    echo "$name: refused: $(head -n 1 /tmp/error)"
  fi
}

try read_environment "cat /proc/$PID/environ"
try read_arguments "cat /proc/$PID/cmdline"
try list_root_of_process "ls /proc/$PID/root/"
try list_folder_of_process "ls /proc/$PID/cwd/"
try send_signal "kill -CONT $PID"
try list_root_of_shim "ls /proc/$PPID/root/"
try list_root_of_init "ls /proc/1/root/"
try signal_daemon "kill -CONT $DAEMON"
try signal_shim "kill -CONT $PPID"
try list_task_folder "ls $TASK"
try read_checkpoint "cat $CHECKPOINTS/weights"
try read_credential_of_node "cat $DATA/credential"
try list_images "ls $DATA/images"
try list_shims "ls $DATA/shims"
try find_home_of_node "test -n \"\$(ls -A /root)\" || test -n \"\$(ls -A /home)\""
try find_temporary_file "ls /tmp/victim-$PID"
try change_program_of_image "echo x >/bin/busybox"
try remove_file_of_image "rm -f /etc/of-image"
try create_file_in_image "mkdir /new"
try change_program_of_executor "echo x >/.muster/executor"
try rename_folder_of_executor "mv /.muster /gone"
try write_image_as_writable "mount -o remount,rw / && mkdir /new"
try mount_memory "mount -t tmpfs tmpfs /tmp"
try mount_processes "mount -t proc proc /tmp"
try unmount_processes "umount -l /proc"
try unmount_root "umount -l /"
try uncover_in_user_namespace "busybox unshare -r -m busybox umount -l /proc"
try change_root "chroot /tmp true"
try create_device "mknod /tmp/disk b 254 0"
try create_device_in_dev "mknod /dev/disk b 254 0"
try write_setting_of_kernel "echo 0 >/sys/kernel/mm/ksm/run"
try write_name_of_host "cat /proc/sys/kernel/hostname >/proc/sys/kernel/hostname"
try leave_cgroup "echo 0 >/sys/fs/cgroup/cgroup.procs"
echo "attempts: $count"
echo end
