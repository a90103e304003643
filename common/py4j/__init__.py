"""py4j's text protocol, spoken as a Java virtual machine speaks it, without one."""
